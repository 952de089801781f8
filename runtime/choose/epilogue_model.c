/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue_model.c: the epilogues that no kernel fuses, and the cost of a
   launch of their own. */
#include "base/context.h"
#include "base/types.h"
#include "choose/dequantize_choose.h"
#include "choose/model.h"
#include "choose/session.h"
#include "problem/dequantize_rules.h"
#include "problem/epilogue_rules.h"
#include "problem/geometry.h"

#include <string.h>

/* ------------------------------------------------------------ architectures */

enum { ARCHES = 16 };

/* Architectures of the registry, and whether a kernel fuses the epilogue. */
struct arches {
    const char *name[ARCHES];
    int fused[ARCHES], apart[ARCHES];
    int count;
};

static int index_of(struct arches *a, const char *arch)
{
    int i = 0;

    while (i < a->count && strcmp(a->name[i], arch) != 0)
        i++;
    if (i == a->count && i < ARCHES)
        a->name[a->count++] = arch;
    return i;
}

/* The problems that serve one where no kernel fuses its epilogue. */
struct others {
    struct qn_problem narrow, wide;
    int has_product, has_wide;
};

static void find_others(struct quern_context *ctx, const struct qn_problem *p,
                        const struct qn_recipe *recipe, struct others *o)
{
    struct qn_problem product, dequantized;

    qn_epilogue_product(p, recipe, &product);
    o->has_product = qn_epilogue_has_sums(ctx, p, recipe);
    o->has_wide = qn_epilogue_dequantized(ctx, p, recipe, &dequantized);
    if (o->has_wide)
        qn_dequantize_product(ctx, &dequantized, recipe, &o->wide);
    qn_dequantize_first(ctx, &product, recipe, product.dequantize, &o->narrow);
}

static void see(struct quern_context *ctx, struct arches *a,
                const struct qn_kernel *kernel, const struct qn_problem *fused,
                const struct others *o)
{
    const int fuses = qn_select_variant(fused, kernel);
    const int serves =
        (o->has_product && qn_select_variant(&o->narrow, kernel)) ||
        (o->has_wide && qn_select_variant(&o->wide, kernel));
    int i;

    if ((!fuses && !serves) || !strcmp(kernel->arch, "host"))
        return;
    i = index_of(a, kernel->arch);
    if (i == ARCHES)
        return;
    a->apart[i] |= serves;
    a->fused[i] |=
        fuses &&
        qn_select_fits(fused, qn_context_recipe(ctx, fused->recipe), kernel);
}

/* All kernels that may serve a problem. */
static void see_all(struct quern_context *ctx, struct arches *a,
                    const struct qn_problem *p, const struct qn_problem *fused,
                    const struct others *o)
{
    const struct qn_kernel_list list =
        qn_context_kernels(ctx, p->op, p->recipe);

    for (int i = 0; i < list.count; i++)
        see(ctx, a, ctx->kernels[list.at[i]].kernel, fused, o);
}

static int same_kernels(const struct qn_problem *a, const struct qn_problem *b)
{
    return a->op == b->op && !strcmp(a->recipe, b->recipe);
}

int qn_epilogue_apart(struct quern_context *ctx, const struct qn_problem *p,
                      const struct qn_recipe *recipe)
{
    struct qn_problem fused;
    struct arches a = {.count = 0};
    struct others o;

    if (!qn_epilogue_has(p) || p->copies)
        return 0;
    if (p->lora) /* no kernel for the host fuses them */
        return 1;
    find_others(ctx, p, recipe, &o);
    qn_dequantize_first(ctx, p, recipe, p->dequantize, &fused);
    see_all(ctx, &a, &fused, &fused, &o);
    if (!same_kernels(&o.narrow, &fused))
        see_all(ctx, &a, &o.narrow, &fused, &o);
    if (o.has_wide && !same_kernels(&o.wide, &fused) &&
        !same_kernels(&o.wide, &o.narrow))
        see_all(ctx, &a, &o.wide, &fused, &o);
    for (int i = 0; i < a.count; i++)
        if (a.apart[i] && !a.fused[i])
            return 1;
    return 0;
}

/* ------------------------------------------------------------------- model */

/* Sums, D and P; and the partial sums of dbias and dprob, by one launch more
   each. */
static double bytes_of(const struct qn_problem *p,
                       const struct qn_recipe *recipe)
{
    struct qn_geometry g;
    double bytes = (double)qn_epilogue_sums(p);

    qn_geometry_of(p, recipe, QN_ROLE_D, &g);
    bytes += (double)qn_geometry_bytes(&g, 0, 0);
    if (!qn_geometry_has(p, QN_ROLE_P))
        return bytes;
    qn_geometry_of(p, recipe, QN_ROLE_P, &g);
    return bytes + (double)qn_geometry_bytes(&g, 0, 0);
}

/* A product, as its plan would choose; 0 cycles: no kernel serves. */
static int look_product(const struct qn_session *s,
                        const struct qn_problem *product, double *cycles)
{
    const struct qn_recipe *recipe = qn_context_recipe(s->ctx, product->recipe);
    struct qn_problem first;
    struct qn_dequantize_choice strategy;
    struct qn_session one = *s;
    int served, code;

    *cycles = 0;
    one.problem = one.demand.problem = product;
    one.demand.recipe = recipe;
    code = qn_dequantize_choose(&one, &strategy);
    if (code ||
        (strategy.judged && strategy.cost[strategy.strategy].cycles > 0)) {
        *cycles = code ? 0 : strategy.cost[strategy.strategy].cycles;
        return code;
    }
    qn_dequantize_first(s->ctx, product, recipe, strategy.strategy, &first);
    code = qn_select_cycles(s->ctx, &s->demand, &first, &served, cycles);
    if (served && strategy.strategy > QUERN_DEQUANTIZE_MAINLOOP)
        *cycles +=
            qn_dequantize_cost_of(product, recipe, strategy.strategy,
                                  qn_model_memory_share(s->demand.device))
                .moving;
    return code;
}

int qn_epilogue_pays(const struct qn_session *s, const struct qn_problem *fused,
                     const struct qn_problem *plain, double bytes, int launches,
                     int *pays)
{
    double one, apart;
    int code;

    *pays = 1;
    if (s->demand.same_sums || s->demand.kernel ||
        s->demand.backend == QUERN_BACKEND_HOST ||
        s->demand.backend == QUERN_BACKEND_CUBLASLT ||
        fused->dequantize != QUERN_DEQUANTIZE_AUTO ||
        !qn_context_recipe(s->ctx, fused->recipe)->scaling[QN_W].packed)
        return QUERN_OK;
    code = look_product(s, fused, &one);
    if (!code)
        code = look_product(s, plain, &apart);
    *pays = code || one <= 0 || apart <= 0 ||
            one < apart + qn_model_cast(&s->device, bytes, launches);
    return code;
}

int qn_epilogue_choose(const struct qn_session *s, struct qn_epilogue_choice *c)
{
    const struct qn_problem *p = s->problem;
    const struct qn_recipe *recipe = s->demand.recipe;
    struct qn_problem product, dequantized, wide;
    int served, code = QUERN_OK;

    memset(c, 0, sizeof *c);
    if (p->lora && s->demand.backend == QUERN_BACKEND_HOST) {
        c->apart = qn_epilogue_has_sums(s->ctx, p, recipe);
        return QUERN_OK;
    }
    if (s->demand.backend == QUERN_BACKEND_HOST ||
        s->demand.backend == QUERN_BACKEND_CUBLASLT ||
        !qn_epilogue_apart(s->ctx, p, recipe))
        return QUERN_OK;
    c->bytes = bytes_of(p, recipe);
    if (qn_epilogue_has_sums(s->ctx, p, recipe)) {
        qn_epilogue_product(p, recipe, &product);
        code = look_product(s, &product, &c->apart);
    }
    if (c->apart > 0)
        c->apart += qn_model_cast(&s->device, c->bytes,
                                  1 + (p->dbias != 0) + (p->dprob != 0));
    if (code || !qn_epilogue_dequantized(s->ctx, p, recipe, &dequantized))
        return code;
    qn_dequantize_product(s->ctx, &dequantized, recipe, &wide);
    code = qn_select_cycles(s->ctx, &s->demand, &wide, &served, &c->dequantize);
    if (served)
        c->dequantize +=
            qn_dequantize_cost_of(&dequantized, recipe, QUERN_DEQUANTIZE_PASS,
                                  qn_model_memory_share(s->demand.device))
                .moving;
    return code;
}

int qn_epilogue_fuses(const struct qn_session *s, int *fuses)
{
    const struct qn_problem *p = s->problem;
    const struct qn_recipe *recipe = s->demand.recipe;
    struct qn_problem product;

    *fuses = 1;
    if (p->lora || !qn_epilogue_has_sums(s->ctx, p, recipe))
        return QUERN_OK;
    qn_epilogue_product(p, recipe, &product);
    return qn_epilogue_pays(s, p, &product, bytes_of(p, recipe),
                            1 + (p->dbias != 0) + (p->dprob != 0), fuses);
}

int qn_epilogue_dequantizes(const struct qn_epilogue_choice *c)
{
    return c->dequantize > 0 && (c->apart <= 0 || c->dequantize < c->apart);
}

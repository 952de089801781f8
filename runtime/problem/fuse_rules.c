/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_rules.c: rules of products that quantize an operand. */
#include "problem/fuse_rules.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/gradient_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"

/* The strategy in a kernel's field `quantize`. */
static int strategy_of(const char *quantize)
{
    int strategy = QUERN_QUANTIZE_PASS;

    if (quantize && *quantize)
        qn_strategy_find(quantize, &strategy);
    return strategy;
}

int qn_fuse_strategy(const struct qn_kernel *kernel)
{
    return strategy_of(kernel->quantize);
}

int qn_fuse_serves(int wanted, const char *quantize)
{
    int strategy = strategy_of(quantize);

    return !strategy || wanted == strategy || wanted == QUERN_QUANTIZE_AUTO;
}

int qn_fuse_wanted(int wanted, const struct qn_kernel *kernel)
{
    return wanted && wanted == qn_fuse_strategy(kernel);
}

/* The quantized A that the run makes. */
void qn_fuse_quantization(const struct qn_problem *p,
                          const struct qn_recipe *recipe,
                          struct qn_quantization *q)
{
    qn_scale_source(p, recipe, QN_ROLE_A, q);
    q->copies = QUERN_ROWWISE | QUERN_COLUMNWISE;
    q->dbias = qn_fuse_sums(p) ? p->dbias : QUERN_NO_DBIAS;
}

int qn_fuse_sums(const struct qn_problem *p)
{
    return p->dbias && p->quantize && !qn_geometry_backward(p);
}

int qn_fuse_problem(const struct qn_problem *p, const struct qn_recipe *recipe)
{
    const char *word = qn_strategy_name(p->quantize);
    struct qn_quantization q;
    const struct qn_scaling *s;

    if (!p->quantize)
        return QUERN_OK;
    if (p->op == QUERN_WGRAD)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: wgrad multiplies columnwise tensors, "
                            "which fprop and dgrad make",
                            word);
    s = qn_scale_source(p, recipe, QN_ROLE_A, &q);
    if (!s)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: recipe %s does not scale a: there is "
                            "nothing to quantize",
                            word, p->recipe);
    if (s->stochastic || s->history)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: recipe %s needs %s, which products "
                            "do not take; quantize a by itself",
                            word, p->recipe,
                            s->history ? "a history" : "a seed");
    return QUERN_OK;
}

/* Sums that no cast makes have as much room as a cast, more than they need. */
void qn_fuse_lay_out(const struct qn_problem *p, const struct qn_recipe *recipe,
                     struct qn_fuse_space *space)
{
    struct qn_quantize_space cast;
    struct qn_quantization q;

    qn_fuse_quantization(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &cast);
    space->end = qn_gradient_end(p);
    space->cast = qn_space_add(&space->end, cast.end);
    space->sums = qn_space_add(&space->end, qn_fuse_sums(p) ? cast.end : 0);
}

int qn_fuse_describe(struct quern_context *ctx, const struct qn_problem *p,
                     const struct qn_recipe *recipe, struct qn_description *d)
{
    struct qn_quantize_description made;
    struct qn_quantization q;
    int code;

    if (!p->quantize)
        return QUERN_OK;
    qn_fuse_quantization(p, recipe, &q);
    code = qn_quantize_describe(ctx, &q, &made, NULL, NULL);
    if (code)
        return code;
    d->args.in = made.args.in;
    d->args.in.alignment = QN_ALIGNMENT;
    d->args.column = made.args.column;
    return QUERN_OK;
}

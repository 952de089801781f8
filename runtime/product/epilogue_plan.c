/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue_plan.c: the launches of a product and its epilogue, and why there
   are two. */
#include "base/error.h"
#include "base/text.h"
#include "choose/model.h"
#include "choose/session.h"
#include "problem/dequantize_rules.h"
#include "problem/epilogue_rules.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <string.h>

static int add_product(struct qn_plan *plan, const struct qn_session *s)
{
    struct qn_plan *product;
    struct qn_problem p;
    int code;

    qn_epilogue_product(s->problem, s->demand.recipe, &p);
    code = qn_plan_inner(s, &p, &s->options, qn_dequantize_make, &product);
    if (code) {
        qn_error_add("  in the product whose epilogue is a launch of its own");
        return code;
    }
    plan->problem.dequantize = product->problem.dequantize;
    plan->target = product->target;
    plan->need.workspace_bytes = qn_epilogue_lay_out(
        s->problem, product->need.workspace_bytes, &plan->sums);
    qn_launch_absorb(plan, product, QN_OPERANDS_GIVEN, QN_FLAG_CALLER);
    return QUERN_OK;
}

/* The kernels are those of tensors without scales, for the sums of
   any recipe. */
static int find_cast(const struct qn_session *s, struct qn_quantization *q)
{
    const struct qn_problem *p = s->problem;
    const struct qn_recipe *plain = qn_dequantize_plain(s->ctx);

    if (!plain)
        return qn_error_set(QUERN_ENOKERNEL,
                            "no recipe has bf16 for x, w and dy, whose kernels "
                            "would be the epilogue of sums");
    *q = (struct qn_quantization){.work = QUERN_QUANTIZE,
                                  .of = qn_geometry_backward(p) ? QN_DY : QN_X,
                                  .type = p->d_type,
                                  .copies = QUERN_ROWWISE,
                                  .groups = p->groups,
                                  .m = p->m,
                                  .k = p->n,
                                  .activation = p->activation};
    strncpy(q->recipe, plain->name, sizeof q->recipe - 1);
    return QUERN_OK;
}

static int add_epilogue(struct qn_plan *plan, struct qn_session *s)
{
    static const int op = QN_EPILOGUE;
    struct qn_quantize_plan *cast;
    struct qn_quantization q;
    int code = find_cast(s, &q);

    if (!code)
        code = qn_quantize_steps(s, &q, plan->backend, &op, 1, &cast);
    if (code)
        qn_error_add("  in the epilogue of the product's sums");
    else
        qn_launch_add(plan, QN_WORK_EPILOGUE)->cast = cast;
    return code;
}

static int add_all(struct qn_plan *plan, struct qn_session *s)
{
    int code = add_product(plan, s);

    if (!code && s->problem->lora)
        code = qn_lora_add_up(plan, s);
    if (!code)
        code = add_epilogue(plan, s);
    if (!code)
        code = qn_gradient_plan(plan, s);
    return code;
}

/* If no kernel fuses the epilogue; `code` is the error of the search. */
static int plan_unfused(struct qn_session *s, int code, struct qn_plan **out)
{
    struct qn_epilogue_choice choice;
    struct qn_problem dequantized;
    const int error = qn_epilogue_choose(s, &choice);

    if (error)
        return error;
    if (qn_epilogue_dequantizes(&choice)) {
        qn_epilogue_dequantized(s->ctx, s->problem, s->demand.recipe,
                                &dequantized);
        code = qn_plan_inner(s, &dequantized, &s->options, qn_dequantize_make,
                             out);
        if (!qn_plan_given_up(code))
            return code;
    }
    return choice.apart > 0
               ? qn_plan_several(s, s->problem->dequantize, add_all, out)
               : code;
}

int qn_epilogue_make(struct qn_session *s, struct qn_plan **out)
{
    const int backend = s->demand.backend, tune_ms = s->options.tune_ms;
    int fuses, code = qn_epilogue_fuses(s, &fuses);

    if (code)
        return code;
    if (!fuses) {
        code = plan_unfused(s, QUERN_ENOKERNEL, out);
        if (!qn_plan_given_up(code))
            return code;
        s->demand.backend = backend;
        s->options.tune_ms = tune_ms;
    }
    code = qn_dequantize_make(s, out);
    if (!qn_plan_given_up(code))
        return code;
    s->demand.backend = backend;
    s->options.tune_ms = tune_ms;
    return plan_unfused(s, code, out);
}

static const char *name_of(const struct qn_problem *p)
{
    return p->lora && p->bias ? "the adapters and the bias"
           : p->lora          ? "the adapters"
           : !p->activation   ? "the bias"
           : p->bias          ? "the bias and the activation"
                              : "the activation";
}

int qn_epilogue_why(const struct qn_session *s, struct qn_text *text)
{
    struct qn_epilogue_choice c;
    int fuses, code = qn_epilogue_choose(s, &c);

    if (!code)
        code = qn_epilogue_fuses(s, &fuses);
    if (code || (c.apart <= 0 && c.dequantize <= 0))
        return code;
    if (s->demand.backend == QUERN_BACKEND_HOST) {
        qn_text_add(text,
                    "no kernel for the host fuses %s with the product: a "
                    "launch after the products makes D of their sums\n\n",
                    name_of(s->problem));
        return code;
    }
    qn_text_add(text,
                fuses ? "no kernel fuses %s with the product: "
                      : "kernels that fuse %s with the product are slower: ",
                name_of(s->problem));
    if (qn_epilogue_dequantizes(&c)) {
        qn_text_add(text,
                    "operands are dequantized for a kernel of bf16 that "
                    "does, %.0f cycles",
                    c.dequantize);
        if (c.apart > 0)
            qn_text_add(text, "; a launch after the product would make it %.0f",
                        c.apart);
    } else {
        qn_text_add(text,
                    "a launch after the product makes D of its sums, %.0f "
                    "cycles with the product, and moves %.0f MB",
                    c.apart, c.bytes / 1e6);
        if (!(s->demand.recipe->d_types >> QUERN_F32 & 1))
            qn_text_add(text,
                        "; the recipe writes no fp32, so these are of operands "
                        "dequantized in a pass");
        if (c.dequantize > 0)
            qn_text_add(text,
                        "; operands dequantized for a kernel of bf16 that "
                        "fuses it would make it %.0f",
                        c.dequantize);
    }
    qn_text_add(text, "\n\n");
    return QUERN_OK;
}

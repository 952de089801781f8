/* SPDX-License-Identifier: Apache-2.0 */
/*
** result_why.c: say how copies of a product's result are made, and why.
*/
#include "product/result.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/session.h"
#include "problem/quantize.h"
#include "product/ahead.h"
#include "product/why.h"

struct cost {
    double bytes, cycles;
};

static struct cost cost_of(const struct quern_problem *p,
                           const struct qn_recipe *recipe)
{
    struct quern_quantization q;
    struct quern_tensor copy = {0};
    struct cost cost;
    double read;
    int twice;

    qn_result_cast(p, recipe, &q);
    twice = qn_quantize_needs_amax(&q, qn_quantize_scaling(&q, recipe));
    read = qn_quantize_values(&q) * qn_type_bits(q.type) / 8;
    cost.bytes = twice ? 2 * read : read;
    for (int which = QUERN_ROW; which <= QUERN_COLUMN; which++) {
        if (!(q.copies & which))
            continue;
        qn_quantize_copy(&q, recipe, which, &copy);
        cost.bytes += (double)copy.bytes + (double)copy.sf_bytes;
    }
    cost.cycles = qn_model_cast(cost.bytes, 1 + twice);
    return cost;
}

/* As the plan would choose; `product` becomes what it would be of. */
static int explain_product(struct qn_session *s, struct quern_problem *product,
                           struct qn_why_choice *choice, char **why)
{
    struct quern_problem ahead;
    int code = qn_ahead_explain(s->ctx, product, &s->options, choice, why);

    if (code || choice->served ||
        !qn_result_ahead(s->ctx, product, s->demand.recipe, &ahead))
        return code;
    *product = ahead;
    quern_free(*why);
    return qn_ahead_explain(s->ctx, product, &s->options, choice, why);
}

/* The product's line, and its kernels. */
static int add_product(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem product;
    struct qn_why_choice choice;
    char line[512], *why = NULL;
    int code;

    qn_result_product(s->problem, &product);
    code = explain_product(s, &product, &choice, &why);
    if (code)
        return code;
    *served = choice.served;
    quern_problem_print(&product, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    qn_text_add_chosen(text, "", why);
    if (!choice.served)
        qn_text_add(text, "  no kernel fits\n");
    quern_free(why);
    return QUERN_OK;
}

/* The cast's line, and its kernel unless the GPU is imagined. */
static int add_cast(struct qn_session *s, struct qn_text *text)
{
    struct quern_plan_options options = s->options;
    struct quern_quantization q;
    char line[512], *why = NULL;
    int code = QUERN_OK;

    options.kernel = NULL;
    qn_result_cast(s->problem, s->demand.recipe, &q);
    quern_quantize_print(&q, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (s->driver || s->demand.backend == QUERN_BACKEND_HOST)
        code = quern_quantize_why(s->ctx, &q, &options, &why);
    if (why)
        qn_text_add_chosen(text, "", why);
    quern_free(why);
    return code;
}

int qn_result_why(struct qn_session *s, int apart, int *served,
                  struct qn_text *text)
{
    const struct qn_recipe *recipe = s->demand.recipe;
    const struct cost cost = cost_of(s->problem, recipe);
    const char *reason = qn_result_apart(s->problem, recipe);
    int code;

    if (!apart) {
        qn_text_add(text,
                    "copies of the result leave the product's own launch; a "
                    "cast behind it would take %.0f cycles to move %.0f MB\n\n",
                    cost.cycles, cost.bytes / 1e6);
        return QUERN_OK;
    }
    qn_text_add(text,
                "copies of the result are made by a cast behind the product, "
                "%.0f cycles to move %.0f MB: %s\n\n",
                cost.cycles, cost.bytes / 1e6,
                reason ? reason
                       : "no kernel makes them in the product's launch");
    code = add_product(s, served, text);
    return code ? code : add_cast(s, text);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** ahead_why.c: explain what operands become before they are multiplied.
*/
#include "product/ahead.h"
#include "base/context.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/ahead_choose.h"
#include "choose/session.h"
#include "problem/geometry.h"
#include "problem/look_rules.h"
#include "problem/reencode_rules.h"
#include "product/backend.h"
#include "product/look.h"
#include "product/reencode.h"
#include "product/why.h"

#include <stdlib.h>

/* A cast's line, and its kernel unless the GPU is imagined. */
static int explain_cast(struct qn_session *s,
                        const struct quern_quantization *q,
                        const struct quern_plan_options *options,
                        struct qn_text *text)
{
    char line[512], *why = NULL;
    int code = QUERN_OK;

    quern_quantize_print(q, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (s->driver || s->demand.backend == QUERN_BACKEND_HOST)
        code = quern_quantize_why(s->ctx, q, options, &why);
    if (why)
        qn_text_add_chosen(text, "", why);
    quern_free(why);
    return code;
}

/* A product's line, and its kernel. */
static int explain_product(struct qn_session *s, const struct quern_problem *p,
                           const struct quern_plan_options *options,
                           int *served, struct qn_text *text)
{
    struct qn_why_choice choice;
    char line[512], *why = NULL;
    int code = qn_why_one(s->ctx, p, options, &choice, &why);

    if (code)
        return code;
    *served &= choice.served;
    quern_problem_print(p, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    qn_text_add_chosen(text, "", why);
    quern_free(why);
    return QUERN_OK;
}

/* The kernels that would run, of a problem that says which way. */
static int explain_steps(struct qn_session *s,
                         const struct quern_problem *given, int second,
                         int *served, struct qn_text *text)
{
    struct quern_plan_options options = s->options, product = s->options;
    struct quern_quantization q;
    struct quern_problem p;
    int code = QUERN_OK;

    options.kernel = NULL;
    if (second)
        product.kernel = NULL;
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++)
        if (qn_ahead_cast(given, s->demand.recipe, role, &q))
            code = explain_cast(s, &q, &options, text);
    qn_ahead_product(s->ctx, given, s->demand.recipe, &p);
    return code ? code : explain_product(s, &p, &product, served, text);
}

/* The same of FP8, and what stands behind it. */
static int explain_fp8(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem p;
    int code;

    if (s->demand.backend == QUERN_BACKEND_HOST) {
        qn_text_add(text, "on the host none of this: its sums are wide, and "
                          "the values as they are\n\n");
        return explain_steps(s, s->problem, 0, served, text);
    }
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        if (qn_reencode_does(s->problem, s->demand.recipe, role))
            qn_reencode_why(s, role, text);
    qn_reencode_product(s->ctx, s->problem, &p);
    code = explain_product(s, &p, &s->options, served, text);
    if (code)
        return code;
    qn_text_add(text, "\nif some value does not fit, by a flag on the "
                      "device\n");
    return explain_steps(s, s->problem, 1, served, text);
}

/* The product as f16. */
static int explain_tried(struct qn_session *s, const struct quern_problem *p,
                         int *served, struct qn_text *text)
{
    struct qn_demand demand = s->demand;
    struct qn_choice best;
    char line[512];
    int found;

    demand.problem = p;
    found = qn_select_best(s->ctx, &demand, &best);
    if (found < 0)
        return QUERN_ENOMEM;
    *served &= found;
    quern_problem_print(p, line, sizeof line);
    qn_text_add(text, "%s\n%s %s\n", line, found ? ">" : " ",
                found ? best.candidate->kernel->name : "no kernel fits");
    if (found)
        qn_text_add(text, "    %.0f cycles: %.0f tiles in %.0f waves of %.0f\n",
                    best.figures.cycles, best.figures.tiles, best.figures.waves,
                    best.figures.tile_cycles);
    return QUERN_OK;
}

/* What looks, the product, and what stands behind it. */
static int explain_f16(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem p;
    int code = QUERN_OK;

    qn_look_product(s->problem, &p);
    if (s->demand.backend == QUERN_BACKEND_HOST)
        qn_text_add(text, "on the host none of this: its products are wide\n");
    else {
        qn_look_why(s, text);
        code = explain_tried(s, &p, served, text);
        qn_text_add(text, "\nif some value does not fit, by a flag on the "
                          "device\n");
    }
    return code ? code : explain_steps(s, &p, 1, served, text);
}

/* What was compared. */
static void add_figures(const struct qn_ahead_choice *choice,
                        struct qn_text *text)
{
    static const int ways[] = {QUERN_EXPAND_FP8, QUERN_EXPAND_F16,
                               QUERN_EXPAND_AHEAD};

    qn_text_add(text, "expand=%s%s: ", qn_expand_name(choice->way),
                choice->tuned ? ", as was measured; by the model" : "");
    for (int i = 0; i < 3; i++) {
        const struct qn_ahead_cost *cost = &choice->cost[ways[i]];

        if (cost->cycles > 0)
            qn_text_add(text, "%s %.0f cycles, %.0f of them to move %.0f MB; ",
                        qn_expand_name(ways[i]), cost->cycles, cost->moving,
                        cost->bytes / 1e6);
    }
    qn_text_add(text, "inside %.0f, as products wait for what expands\n",
                choice->cost[QUERN_EXPAND_INSIDE].cycles);
}

/* What becomes of the operands, and what it takes. */
static void add_way(struct qn_session *s, int way, struct qn_text *text)
{
    const struct qn_recipe *blocks =
        way == QUERN_EXPAND_FP8 ? qn_reencode_blocks(s->ctx) : NULL;
    struct quern_quantization q;
    struct qn_ahead_space space;

    if (way == QUERN_EXPAND_F16) {
        qn_text_add(text, "codes become f16 beside the product, relative to "
                          "each operand's largest scale: exact, where its "
                          "scales are within 2^21 of each other\n\n");
        return;
    }
    qn_ahead_lay_out(s->problem, s->demand.recipe, blocks, &space);
    if (blocks)
        qn_text_add(
            text,
            "operands become e4m3 with a power of two for 128 values of k, the "
            "same values, in %zu bytes of workspace\n"
            "sums are those of FP8 tensor cores, of about 13 bits for 128 "
            "values; expand=inside%s sums in fp32\n\n",
            space.end,
            qn_ahead_cast(s->problem, s->demand.recipe, QN_ROLE_A, &q)
                ? " or ahead"
                : "");
    else
        qn_text_add(text, "operands become bf16 in %zu bytes of workspace\n\n",
                    space.end);
}

/* Why values that may be expanded are not to be had in FP8. */
static void add_wrong(struct qn_session *s, struct qn_text *text)
{
    const struct quern_problem *p = s->problem;
    const char *why = qn_reencode_wrong(s->ctx, p, s->demand.recipe);

    if (why && p->expand == QUERN_EXPAND_AUTO &&
        !qn_ahead_check(s->ctx, p, s->demand.recipe))
        qn_text_add(text, "not as fp8: %s\n", why);
    why = qn_look_wrong(p, s->demand.recipe);
    if (why && p->expand == QUERN_EXPAND_AUTO &&
        !qn_ahead_check(s->ctx, p, s->demand.recipe))
        qn_text_add(text, "not as f16: %s\n", why);
}

/* Sizes alone may have decided. */
static int is_small(struct qn_session *s)
{
    const struct quern_problem *p = s->problem;
    const struct qn_recipe *recipe = s->demand.recipe;

    return p->expand == QUERN_EXPAND_AUTO && !s->demand.kernel &&
           s->demand.backend != QUERN_BACKEND_HOST &&
           !qn_ahead_wrong(s->ctx, p, recipe, QUERN_EXPAND_AHEAD) &&
           !qn_ahead_end(s->ctx, p, recipe);
}

int qn_ahead_why(struct qn_session *s, const struct qn_ahead_choice *choice,
                 int *served, struct qn_text *text)
{
    int code;

    add_wrong(s, text);
    if (choice->judged)
        add_figures(choice, text);
    else if (choice->asked)
        qn_text_add(text, "expand=%s, as the problem says\n",
                    qn_expand_name(choice->way));
    else if (is_small(s))
        qn_text_add(text, "expand=inside: too few rows meet each weight to "
                          "expand them in launches of their own\n\n");
    if (choice->way == QUERN_EXPAND_INSIDE) {
        if (choice->judged)
            qn_text_add(text, "\n");
        return QUERN_OK;
    }
    add_way(s, choice->way, text);
    code = choice->way == QUERN_EXPAND_FP8 ? explain_fp8(s, served, text)
           : choice->way == QUERN_EXPAND_F16
               ? explain_f16(s, served, text)
               : explain_steps(s, s->problem, 0, served, text);
    if (!code && !choice->asked)
        qn_text_add(text,
                    "\nkernels that would expand beside their products\n");
    return code;
}

static int explain(struct qn_session *s, struct qn_why_choice *choice,
                   struct qn_text *text)
{
    struct qn_ahead_choice way;
    struct qn_choice *list;
    int count, code = qn_ahead_choose(s, &way);

    *choice = (struct qn_why_choice){.served = 1, .expand = way.way};
    if (!code && s->demand.backend == QUERN_BACKEND_CUBLASLT) {
        qn_why_title(text, s);
        return s->ctx->cublaslt->explain(s, &choice->served, text);
    }
    if (!code && way.asked) { /* kernels that read copies are out of question */
        qn_why_title(text, s);
        return qn_ahead_why(s, &way, &choice->served, text);
    }
    if (!code)
        code = qn_why_list(s, &list, &count);
    if (code)
        return code;
    qn_why_title(text, s);
    code = qn_ahead_why(s, &way, &choice->served, text);
    qn_tuned_why(s, way.tuned, text);
    qn_why_best(s, list, count, &choice->served, text);
    qn_why_kernels(s, list, count, way.way != QUERN_EXPAND_INSIDE, text);
    free(list);
    return code;
}

int qn_ahead_explain(struct quern_context *ctx,
                     const struct quern_problem *problem,
                     const struct quern_plan_options *options,
                     struct qn_why_choice *choice, char **out)
{
    struct qn_session session;
    struct qn_text text = {0};
    int code = qn_why_begin(&session, ctx, problem, options, &text);

    if (!code)
        code = explain(&session, choice, &text);
    return qn_why_end(&session, &text, code, out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: a problem as text, in both directions. */
#include "problem/problem.h"
#include "base/context.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/geometry.h"

#include <string.h>

struct parser {
    struct quern_context *ctx;
    const char *at;
    char word[QN_LONGEST_WORD];
    struct qn_problem *problem;
    const struct qn_recipe *recipe;
};

/* The first word. */
static int parse_op(struct parser *parser)
{
    struct qn_guess guess = {.word = parser->word};
    char hint[128];
    int found = qn_field_next(&parser->at, parser->word);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found)
        return qn_error_set(QUERN_EINVAL, "the problem is empty; for example: "
                                          "fprop bf16 g=8 m=4096 n=2048 "
                                          "k=7168");
    if (qn_product_find(parser->word, &parser->problem->op))
        return QUERN_OK;
    if (qn_renamed_check("", parser->word))
        return QUERN_EINVAL;
    for (int i = 0; i < QUERN_OP_COUNT; i++)
        qn_guess_try(&guess, qn_op_name(i));
    return qn_error_set(QUERN_EINVAL,
                        "op '%s' is unknown%s; known: fprop, "
                        "dgrad, wgrad",
                        parser->word, qn_guess_text(&guess, hint, sizeof hint));
}

/* The second word; it also decides the type of D. */
static int parse_recipe(struct parser *parser)
{
    struct qn_problem *p = parser->problem;
    int code = qn_problem_recipe(parser->ctx, &parser->at, qn_op_name(p->op),
                                 p->recipe, &parser->recipe);

    if (!code)
        p->d_type = parser->recipe->default_d;
    return code;
}

int qn_problem_parse(struct quern_context *ctx, const char *text,
                     struct qn_problem *problem)
{
    struct qn_problem p = {.op = 0};
    struct parser parser = {.ctx = ctx, .at = text, .problem = &p};
    int code = parse_op(&parser);

    if (!code)
        code = parse_recipe(&parser);
    if (!code) {
        qn_problem_defaults(&p, parser.recipe);
        code = qn_field_parse(&qn_line_product, p.op, parser.at, &p);
    }
    if (!code)
        code = qn_problem_check(ctx, &p, NULL);
    if (!code)
        code = qn_split_check(&p);
    if (!code)
        *problem = p;
    return code;
}

int qn_problem_print(const struct qn_problem *p, char *buffer, size_t size)
{
    struct qn_problem usual = {.op = p->op};

    if (p->op >= QUERN_FPROP && p->op <= QUERN_WGRAD)
        qn_problem_defaults(&usual, NULL);
    return qn_field_print(&qn_line_product, 0, qn_op_name(p->op), p, &usual,
                          p->recipe, buffer, size);
}

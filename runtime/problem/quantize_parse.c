/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_parse.c: a quantization as text, in both directions. */
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/problem.h"
#include "problem/quantize.h"

struct parser {
    const char *at;
    char word[QN_LONGEST_WORD];
    struct qn_quantization *q;
};

/* The first word, and the values derived from it. */
static int parse_work(struct parser *parser)
{
    struct qn_quantization *q = parser->q;
    int found = qn_field_next(&parser->at, parser->word);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found)
        return qn_error_set(QUERN_EINVAL,
                            "the quantization is empty; for example: quantize "
                            "fp8_block of=x g=8 m=4096 k=7168");
    q->type = QUERN_BF16;
    q->groups = 1;
    q->copies = QUERN_ROWWISE | QUERN_COLUMNWISE;
    if (qn_renamed_check("", parser->word) ||
        qn_field_listed("", parser->word, &qn_work_words, &q->work))
        return QUERN_EINVAL;
    if (q->work == QUERN_TRANSPOSE)
        q->copies = QUERN_COLUMNWISE;
    if (q->work == QUERN_DEQUANTIZE || q->work == QUERN_BIAS)
        q->copies = QUERN_ROWWISE;
    return QUERN_OK;
}

int qn_quantize_parse(struct quern_context *ctx, const char *text,
                      struct qn_quantization *out)
{
    struct qn_quantization q = {.work = 0};
    struct parser parser = {.at = text, .q = &q};
    const struct qn_recipe *recipe;
    int code = parse_work(&parser);

    if (!code)
        code = qn_problem_recipe(ctx, &parser.at, qn_work_name(q.work),
                                 q.recipe, &recipe);
    if (!code)
        code = qn_field_parse(&qn_line_cast, q.work, parser.at, &q);
    if (!code)
        code = qn_quantize_check(ctx, &q, NULL);
    if (!code)
        *out = q;
    return code;
}

int qn_quantize_print(const struct qn_quantization *q, char *buffer,
                      size_t size)
{
    static const struct qn_quantization usual;

    return qn_field_print(&qn_line_cast, q->work, qn_work_name(q->work), q,
                          &usual, q->recipe, buffer, size);
}

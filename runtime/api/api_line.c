/* SPDX-License-Identifier: Apache-2.0 */
/* api_line.c: lines of any kind. */
#include "api/api.h"
#include "base/error.h"
#include "problem/field.h"
#include "problem/problem.h"

#include <stdlib.h>
#include <string.h>

/* The first word is near no line's. */
static int refuse_word(const char *text)
{
    char word[QN_LONGEST_WORD], words[160];

    if (qn_field_next(&text, word) < 0 || qn_renamed_check("", word))
        return QUERN_EINVAL;
    return qn_error_set(QUERN_EINVAL, "'%s' begins no problem; known: %s", word,
                        qn_line_words(words, sizeof words));
}

int qn_api_line(struct quern_context *ctx, const char *text,
                struct qn_line *line)
{
    if (!ctx || !text)
        return qn_error_set(QUERN_EINVAL, "%s is NULL", ctx ? "line" : "ctx");
    line->kind = qn_line_of(text);
    switch (line->kind) {
    case QN_LINE_MLP:
        return qn_mlp_parse(ctx, text, &line->of.mlp);
    case QN_LINE_MOE:
        return qn_moe_parse(ctx, text, &line->of.moe);
    case QN_LINE_ROUTE:
        return qn_route_parse(text, &line->of.route);
    case QN_LINE_CAST:
        return qn_quantize_parse(ctx, text, &line->of.cast);
    case QN_LINE_UNKNOWN:
        return refuse_word(text);
    default:
        return qn_problem_parse(ctx, text, &line->of.product);
    }
}

int qn_api_has_mlp(int kind)
{
    return kind == QN_LINE_MLP || kind == QN_LINE_MOE;
}

int64_t *qn_api_rows(struct qn_line *line)
{
    struct qn_problem *p = &line->of.product;

    switch (line->kind) {
    case QN_LINE_MLP:
    case QN_LINE_MOE:
        return &line->of.mlp.m;
    case QN_LINE_ROUTE:
        return &line->of.route.m;
    case QN_LINE_CAST:
        return line->of.cast.of == QN_W || line->of.cast.work == QUERN_RESCALE
                   ? NULL
                   : &line->of.cast.m;
    default:
        return p->ragged == QUERN_AXIS_M   ? &p->m
               : p->ragged == QUERN_AXIS_N ? &p->n
               : p->ragged == QUERN_AXIS_K ? &p->k
                                           : NULL;
    }
}

int qn_api_print(const struct qn_line *line, char *buffer, size_t size)
{
    switch (line->kind) {
    case QN_LINE_MLP:
        return qn_mlp_print(&line->of.mlp, buffer, size);
    case QN_LINE_MOE:
        return qn_moe_print(&line->of.moe, buffer, size);
    case QN_LINE_ROUTE:
        return qn_route_print(&line->of.route, buffer, size);
    case QN_LINE_CAST:
        return qn_quantize_print(&line->of.cast, buffer, size);
    default:
        return qn_problem_print(&line->of.product, buffer, size);
    }
}

int qn_api_needs(struct quern_context *ctx, const struct qn_line *line,
                 union qn_needs *needs)
{
    switch (line->kind) {
    case QN_LINE_MLP:
        return qn_mlp_needs(ctx, &line->of.mlp, &needs->mlp);
    case QN_LINE_MOE:
        return qn_moe_needs(ctx, &line->of.moe, &needs->mlp);
    case QN_LINE_ROUTE:
        return qn_route_needs(&line->of.route, &needs->route);
    case QN_LINE_CAST:
        return qn_quantize_needs(ctx, &line->of.cast, &needs->cast);
    default:
        return qn_problem_describe(ctx, &line->of.product, &needs->product);
    }
}

int quern_format(struct quern_context *ctx, const char *text, char *buffer,
                 size_t size, size_t *length)
{
    struct qn_line line;
    int needed, code = qn_api_line(ctx, text, &line);

    if (code)
        return code;
    if (!buffer && size)
        return qn_error_set(QUERN_EINVAL, "buffer is NULL, size is %zu", size);
    needed = qn_api_print(&line, buffer, size);
    if (length)
        *length = (size_t)needed;
    return QUERN_OK;
}

int quern_infer(struct quern_context *ctx,
                const struct quern_contraction *given, char *buffer,
                size_t size, size_t *length)
{
    struct qn_contraction contraction;
    struct qn_problem problem;
    size_t room;
    char *text;
    int code;

    if (!ctx || !given)
        return qn_error_set(QUERN_EINVAL, "%s is NULL",
                            ctx ? "contraction" : "ctx");
    contraction = (struct qn_contraction){.recipe = given->recipe,
                                          .groups = given->groups,
                                          .a = given->a,
                                          .b = given->b,
                                          .d = given->d};
    code = qn_infer(ctx, &contraction, &problem);
    if (code)
        return code;
    room = (size_t)qn_problem_print(&problem, NULL, 0) +
           (given->keys ? strlen(given->keys) : 0) + 2;
    text = malloc(room);
    if (!text)
        return qn_error_memory();
    qn_problem_print(&problem, text, room);
    if (given->keys && *given->keys)
        strcat(strcat(text, " "), given->keys);
    code = quern_format(ctx, text, buffer, size, length);
    free(text);
    return code;
}

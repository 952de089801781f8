/* SPDX-License-Identifier: Apache-2.0 */
/*
** quantize_parse.c: a quantization as text, in both directions.
*/
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/renamed.h"

#include <stdio.h>

struct parser {
    const char *at;
    char word[QN_LONGEST_WORD];
    struct qn_quantization *q;
};

static int set_of(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;

    return qn_parse_listed(key, value, &q->of, qn_of_find, qn_of_at);
}

static int set_activation(void *quantization, const char *key,
                          const char *value)
{
    struct qn_quantization *q = quantization;

    return qn_parse_listed(key, value, &q->activation, qn_activation_find,
                           qn_activation_at);
}

/* The list has "none", which is no copy. */
static int set_copies(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;

    if (qn_copies_find(value, &q->copies) && q->copies)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: rowwise, columnwise or both is expected", key,
                        value);
}

/* The key says what it is: in= of what is quantized, out= of numbers again. */
static int set_type(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;
    int is_out = *key == 'o', wants_out = q->work == QUERN_DEQUANTIZE;

    if (is_out != wants_out || q->work == QUERN_TRANSPOSE)
        return qn_error_set(QUERN_EINVAL, "%s=: %s", key,
                            wants_out                   ? "dequantize has out="
                            : q->work == QUERN_QUANTIZE ? "quantize has in="
                            : q->work == QUERN_BIAS
                                ? "bias has in="
                                : "only numbers have a type to choose");
    if (qn_type_find(value, &q->type) && q->type <= QUERN_F32)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s=%s: bf16, f16 or f32 is expected",
                        key, value);
}

/* Ranges are checked when all is known. */
static int set_length(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;

    return qn_parse_number(key, value, *key == 'm' ? &q->m : &q->k);
}

static int set_integer(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;
    int *out = *key == 'g'   ? &q->groups
               : *key == 'i' ? &q->interleave
               : *key == 'p' ? &q->probability
                             : &q->dprob;
    int code = qn_parse_int(key, value, out);

    if (!code && (*key == 'p' || *key == 'd') && *out > 1)
        code =
            qn_error_set(QUERN_EINVAL, "%s=%s: 0 or 1 is expected", key, value);
    return code;
}

static int set_dbias(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;

    return qn_parse_dbias(key, value, &q->dbias);
}

static int set_sizes(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;

    return qn_parse_sizes(key, value, &q->sizes);
}

static int set_split(void *quantization, const char *key, const char *value)
{
    struct qn_quantization *q = quantization;

    (void)key;
    return qn_parse_split(value, q->split, sizeof q->split);
}

/* What is required is so of all but rescale. */
static const struct qn_parse_key keys[] = {
    {"of", set_of, 0},
    {"g", set_integer, 1},
    {"m", set_length, 1},
    {"k", set_length, 1},
    {"in", set_type, 0},
    {"out", set_type, 0},
    {"copies", set_copies, 0},
    {"activation", set_activation, 0},
    {"interleave", set_integer, 0},
    {"prob", set_integer, 0},
    {"dbias", set_dbias, 0},
    {"dprob", set_integer, 0},
    {"sizes", set_sizes, 0},
    {"split", set_split, 0},
    {NULL, NULL, 0},
};

/* The first word, and what follows from it. */
static int parse_work(struct parser *parser)
{
    struct qn_quantization *q = parser->q;
    int found = qn_parse_word(&parser->at, parser->word);

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
        qn_parse_listed("", parser->word, &q->work, qn_work_find, qn_work_at))
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
    int code;

    if (!ctx || !text || !out)
        return qn_error_null("ctx", ctx, "text", text, "quantization");
    code = parse_work(&parser);
    if (!code)
        code = qn_parse_recipe(ctx, &parser.at, qn_work_name(q.work), q.recipe,
                               &recipe);
    if (!code)
        code = qn_parse_pairs(parser.at, keys, q.work != QUERN_RESCALE, &q);
    if (!code)
        code = qn_quantize_check(ctx, &q, NULL);
    if (!code)
        *out = q;
    return code;
}

/* What is not as it follows from the work, each with a blank before it. */
static void print_unusual(const struct qn_quantization *q, char *text,
                          size_t size)
{
    size_t used = 0;

#define ADD(...) used += (size_t)snprintf(text + used, size - used, __VA_ARGS__)
    if (q->work == QUERN_QUANTIZE || q->work == QUERN_BIAS)
        ADD(" in=%s", qn_type_name(q->type));
    if (q->work == QUERN_DEQUANTIZE)
        ADD(" out=%s", qn_type_name(q->type));
    if (q->work == QUERN_QUANTIZE || q->work == QUERN_DEQUANTIZE)
        ADD(" copies=%s", qn_copies_name(q->copies));
    if (q->activation)
        ADD(" activation=%s", qn_activation_name(q->activation));
    if (q->interleave)
        ADD(" interleave=%d", q->interleave);
    if (q->probability)
        ADD(" prob=1");
    if (q->dbias)
        ADD(" dbias=%s", qn_parse_dbias_name(q->dbias));
    if (q->dprob)
        ADD(" dprob=1");
    if (q->sizes)
        ADD(" sizes=%s", qn_sizes_name(q->sizes));
#undef ADD
}

int qn_quantize_print(const struct qn_quantization *q, char *buffer,
                      size_t size)
{
    char unusual[160] = "";

    if (!buffer)
        size = 0;
    if (!q)
        return snprintf(buffer, size, "%s", "");
    if (q->work == QUERN_RESCALE)
        return snprintf(buffer, size, "rescale %.*s of=%s",
                        (int)sizeof q->recipe, q->recipe, qn_of_name(q->of));
    print_unusual(q, unusual, sizeof unusual);
    return snprintf(buffer, size, "%s %.*s of=%s g=%d m=%lld k=%lld%s%s%.*s",
                    qn_work_name(q->work), (int)sizeof q->recipe, q->recipe,
                    qn_of_name(q->of), q->groups, (long long)q->m,
                    (long long)q->k, unusual, q->split[0] ? " split=" : "",
                    (int)sizeof q->split, q->split);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_parse.c: a grouped MLP as text, in both directions.
*/
#include "base/context.h"
#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/mlp.h"
#include "problem/problem.h"

#include <stdio.h>
#include <string.h>

/* Numbers: bf16, f16 or f32. */
static int set_type(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;
    int type;

    if (!qn_type_find(value, &type) || type < QUERN_BF16 || type > QUERN_F32)
        return qn_error_set(QUERN_EINVAL, "%s=%s: bf16, f16 or f32 is expected",
                            key, value);
    *(*key == 'i' ? &mlp->type : &mlp->dw_type) = type;
    return QUERN_OK;
}

/* Ranges are checked when all is known. */
static int set_length(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;

    return qn_parse_number(key, value,
                           *key == 'm'   ? &mlp->m
                           : *key == 'h' ? &mlp->hidden
                                         : &mlp->ffn);
}

static int set_integer(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;

    return qn_parse_int(key, value,
                        *key == 'g' ? &mlp->groups : &mlp->interleave);
}

static int set_microbatches(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;

    return qn_parse_microbatches(key, value, &mlp->microbatches);
}

static int set_switch(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;
    int on = !strcmp(value, "1");

    if (!on && strcmp(value, "0"))
        return qn_error_set(QUERN_EINVAL, "%s=%s: 0 or 1 is expected", key,
                            value);
    if (!strcmp(key, "beta"))
        mlp->dw_beta = on ? QUERN_BETA_ONE : QUERN_BETA_ZERO;
    else if (!strcmp(key, "bias"))
        mlp->bias = on;
    else if (!strcmp(key, "recompute"))
        mlp->recompute = on;
    else
        mlp->probability = on;
    return QUERN_OK;
}

static int set_activation(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;
    int code = qn_parse_listed(key, value, &mlp->activation, qn_activation_find,
                               qn_activation_at);

    if (!code && mlp->activation == QUERN_NO_ACTIVATION)
        code = qn_error_set(QUERN_EINVAL, "%s=%s: an MLP has one", key, value);
    return code;
}

static int set_sizes(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;

    return qn_parse_sizes(key, value, &mlp->sizes);
}

static int set_split(void *target, const char *key, const char *value)
{
    struct qn_mlp *mlp = target;

    (void)key;
    return qn_parse_split(value, mlp->split, sizeof mlp->split);
}

static const struct qn_parse_key keys[] = {
    {"g", set_integer, 1},
    {"m", set_length, 1},
    {"hidden", set_length, 1},
    {"ffn", set_length, 1},
    {"in", set_type, 0},
    {"dw", set_type, 0},
    {"beta", set_switch, 0},
    {"activation", set_activation, 0},
    {"interleave", set_integer, 0},
    {"prob", set_switch, 0},
    {"bias", set_switch, 0},
    {"recompute", set_switch, 0},
    {"microbatches", set_microbatches, 0},
    {"sizes", set_sizes, 0},
    {"split", set_split, 0},
    {NULL, NULL, 0},
};

/* What the recipe does not scale is of its type; bf16 if it scales all, or
   keeps something as no numbers are, which is said later. */
static int usual_type(const struct qn_recipe *recipe)
{
    const int types[QN_TENSORS] = {recipe->x, recipe->w, recipe->dy};

    for (int of = 0; of < QN_TENSORS; of++)
        if (recipe->scaling[of].type == QUERN_TYPE_NONE &&
            qn_element_known(types[of]))
            return types[of];
    return QUERN_BF16;
}

int qn_mlp_parse(struct quern_context *ctx, const char *text,
                 struct qn_mlp *out)
{
    struct qn_mlp mlp = {.activation = QUERN_SWIGLU};
    const struct qn_recipe *recipe;
    char word[QN_LONGEST_WORD];
    int found, code;

    if (!ctx || !text || !out)
        return qn_error_null("ctx", ctx, "text", text, "mlp");
    found = qn_parse_word(&text, word);
    if (found < 0)
        return QUERN_EINVAL;
    if (!found || strcmp(word, "mlp"))
        return qn_error_set(QUERN_EINVAL,
                            "'%s': an MLP begins with mlp; for example: mlp "
                            "fp8_block g=8 m=4096 hidden=2048 ffn=1408",
                            word);
    code = qn_parse_recipe(ctx, &text, word, mlp.recipe, &recipe);
    if (!code) {
        mlp.type = usual_type(recipe);
        mlp.dw_type = recipe->default_d;
        code = qn_parse_pairs(text, keys, 1, &mlp);
    }
    if (!code)
        code = qn_mlp_check(ctx, &mlp, NULL);
    if (!code)
        *out = mlp;
    return code;
}

int qn_mlp_print(const struct qn_mlp *mlp, char *buffer, size_t size)
{
    char interleave[32] = "", microbatches[32] = "";

    if (!buffer)
        size = 0;
    if (!mlp)
        return snprintf(buffer, size, "%s", "");
    if (mlp->interleave)
        snprintf(interleave, sizeof interleave, " interleave=%d",
                 mlp->interleave);
    if (mlp->microbatches > 0)
        snprintf(microbatches, sizeof microbatches, " microbatches=%d",
                 mlp->microbatches);
    return snprintf(
        buffer, size,
        "mlp %.*s g=%d m=%lld hidden=%lld ffn=%lld in=%s dw=%s%s "
        "activation=%s%s%s%s%s%s%s%s%s%.*s",
        (int)sizeof mlp->recipe, mlp->recipe, mlp->groups, (long long)mlp->m,
        (long long)mlp->hidden, (long long)mlp->ffn, qn_type_name(mlp->type),
        qn_type_name(mlp->dw_type),
        mlp->dw_beta == QUERN_BETA_ONE ? " beta=1" : "",
        qn_activation_name(mlp->activation), interleave,
        mlp->probability ? " prob=1" : "", mlp->bias ? " bias=1" : "",
        mlp->recompute ? " recompute=1" : "", microbatches,
        mlp->sizes ? " sizes=" : "",
        mlp->sizes ? qn_sizes_name(mlp->sizes) : "",
        mlp->split[0] ? " split=" : "", (int)sizeof mlp->split, mlp->split);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** problem.c: the rules that a problem must keep.
*/
#include "problem/problem.h"
#include "base/context.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/geometry.h"

#include <stdio.h>
#include <string.h>

/* Append the names of all recipes, with commas. */
static void list_recipes(const struct quern_registry *registry,
                         struct qn_guess *guess, char *names, size_t size)
{
    for (int i = 0; registry && i < registry->nrecipes; i++) {
        size_t used = strlen(names);

        qn_guess_try(guess, registry->recipes[i].name);
        snprintf(names + used, size - used, "%s%s", used ? ", " : "",
                 registry->recipes[i].name);
    }
}

int qn_problem_no_recipe(struct quern_context *ctx, const char *name)
{
    struct qn_guess guess = {.word = name};
    char names[1024] = "", hint[128];

    list_recipes(ctx->base, &guess, names, sizeof names);
    list_recipes(ctx->linked, &guess, names, sizeof names);
    return qn_error_set(QUERN_EINVAL, "recipe '%s' is unknown%s; known: %s",
                        name, qn_guess_text(&guess, hint, sizeof hint), names);
}

int qn_problem_recipe(struct quern_context *ctx, const char **at,
                      const char *before, char name[32],
                      const struct qn_recipe **recipe)
{
    char word[QN_LONGEST_WORD];
    int found = qn_field_next(at, word);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found || strchr(word, '='))
        return qn_error_set(QUERN_EINVAL, "a recipe is expected after '%s'",
                            before);
    *recipe = qn_context_recipe(ctx, word);
    if (!*recipe || strlen(word) >= 32)
        return qn_problem_no_recipe(ctx, word);
    strcpy(name, word);
    return QUERN_OK;
}

int qn_problem_begin(struct quern_context *ctx, const struct qn_fields *line,
                     const void *target, const struct qn_recipe **recipe)
{
    const char *name = target;
    int code = qn_field_check(line, target);

    if (code)
        return code;
    if (!memchr(name, 0, sizeof((struct qn_problem *)0)->recipe))
        return qn_error_set(QUERN_EINVAL, "recipe is not NUL-terminated");
    *recipe = qn_context_recipe(ctx, name);
    return *recipe ? QUERN_OK : qn_problem_no_recipe(ctx, name);
}

int qn_problem_gradient(const struct qn_recipe *recipe, const char *given,
                        const char *instead)
{
    if (recipe->dy != QUERN_TYPE_NONE)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s: recipe %s has no dy, the gradient of the output; "
                        "%s, or name its type in the spec: element = { x = "
                        "..., w = ..., dy = ... }",
                        given, recipe->name, instead);
}

int qn_problem_stride(const char *tensor, int64_t stride, int64_t least)
{
    if (stride >= least && stride <= INT32_MAX)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s.stride is %lld: 0 (packed) or %lld to %d is "
                        "expected",
                        tensor, (long long)stride, (long long)least, INT32_MAX);
}

int qn_problem_alignment(const struct qn_problem *p, int type)
{
    int element = qn_type_bits(type) / 8;
    int given = p->alignment ? p->alignment : QN_ALIGNMENT;

    return given > element ? given : element;
}

int qn_problem_groups(int groups)
{
    if (groups >= 1 && groups <= QUERN_MAX_GROUPS)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "g=%d: 1 to %d groups are possible",
                        groups, QUERN_MAX_GROUPS);
}

/* With one operand, nothing alternates. Points that were rejected
   before they had an activation stand for all. */
static int same_activation(const struct qn_problem *p, const char *activation,
                           int interleave)
{
    return !activation || !strcmp(activation, "any") ||
           (!strcmp(activation, qn_activation_name(p->activation)) &&
            interleave == (qn_geometry_halves(p) ? p->interleave : 0));
}

int qn_problem_takes(const struct qn_problem *p, int epilogue,
                     const char *activation, int interleave)
{
    if (qn_geometry_backward(p))
        return epilogue == (p->copies ? QN_GRADIENT_COPIES : QN_GRADIENT) &&
               same_activation(p, activation, interleave);
    if (p->bias || p->activation || p->copies)
        return epilogue == (p->copies ? QN_COPIES : QN_ACTIVATE) &&
               same_activation(p, activation, interleave);
    switch (epilogue) {
    case QN_STORE:
        return !p->alpha && p->beta == QUERN_BETA_ZERO;
    case QN_ADD:
        return !p->alpha && p->beta == QUERN_BETA_ONE;
    case QN_ALPHA:
        return p->alpha && p->beta == QUERN_BETA_ZERO;
    default:
        return epilogue == QN_SCALE;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* mlp_parse.c: a grouped MLP as text, in both directions. */
#include "base/context.h"
#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/mlp.h"
#include "problem/problem.h"

#include <string.h>

/* Tensors that the recipe does not scale have its type; bf16 if it scales all,
   or keeps something in a type without values, which is reported later. */
static int usual_type(const struct qn_recipe *recipe)
{
    const int types[QN_TENSORS] = {recipe->x, recipe->w, recipe->dy};

    for (int of = 0; of < QN_TENSORS; of++)
        if (recipe->scaling[of].type == QUERN_TYPE_NONE &&
            qn_element_known(types[of]))
            return types[of];
    return QUERN_BF16;
}

/* The recipe's first, unless dw1 and dw2 are products of another recipe, which
   writes no such type. */
static int usual_dw_type(const struct quern_context *ctx,
                         const struct qn_recipe *recipe)
{
    const struct qn_recipe *of = qn_mlp_gradients(ctx, recipe);

    return of->d_types >> recipe->default_d & 1 ? recipe->default_d
                                                : of->default_d;
}

int qn_mlp_begin(struct quern_context *ctx, const char **text, const char *kind,
                 struct qn_mlp *mlp)
{
    const struct qn_recipe *recipe;
    char word[QN_LONGEST_WORD];
    const int found = qn_field_next(text, word), layer = !strcmp(kind, "moe");
    int code;

    if (found < 0)
        return QUERN_EINVAL;
    if (!found || strcmp(word, kind))
        return qn_error_set(QUERN_EINVAL,
                            "'%s': %s begins with %s; for example: %s "
                            "fp8_block g=8 m=4096 %shidden=2048 ffn=1408",
                            word, layer ? "a layer" : "an MLP", kind, kind,
                            layer ? "topk=2 " : "");
    code = qn_problem_recipe(ctx, text, word, mlp->recipe, &recipe);
    if (code)
        return code;
    mlp->activation = QUERN_SWIGLU;
    mlp->type = usual_type(recipe);
    mlp->dw_type = usual_dw_type(ctx, recipe);
    return QUERN_OK;
}

int qn_mlp_parse(struct quern_context *ctx, const char *text,
                 struct qn_mlp *out)
{
    struct qn_mlp mlp = {.probability = 0};
    int code = qn_mlp_begin(ctx, &text, "mlp", &mlp);

    if (!code)
        code = qn_field_parse(&qn_line_mlp, 0, text, &mlp);
    if (!code)
        code = qn_mlp_check(ctx, &mlp, NULL);
    if (!code)
        *out = mlp;
    return code;
}

int qn_mlp_print(const struct qn_mlp *mlp, char *buffer, size_t size)
{
    static const struct qn_mlp usual;

    return qn_field_print(&qn_line_mlp, 0, "mlp", mlp, &usual, mlp->recipe,
                          buffer, size);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* match.c: which variants a kernels statement makes of a recipe. */
#include "grid/grid.h"
#include "lua/base.h"

#include <string.h>

static int has_type(const struct qg_types *types, int type)
{
    for (int i = 0; i < types->count; i++)
        if (types->at[i] == type)
            return 1;
    return 0;
}

static int has_name(const struct qg_names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (!strcmp(names->at[i], name))
            return 1;
    return 0;
}

/* Does the statement's template take such an operand? */
static int takes(const struct qg_kernels *k, const struct qg_factor *f)
{
    if (!has_type(&k->element, f->element))
        return 0;
    if (!f->scale)
        return has_name(&k->scale, "none");
    return has_name(&k->scale, "blocked") ||
           has_name(&k->scale, qg_list_spans.words[f->scale->block.span]);
}

/* Does the statement's template support the recipe's scales? One that lists
   scales is for scaled products: "none" then is for one operand next to another
   that has some, and reads as a rowwise tensor does; there is no columnwise
   tensor of it. Operands with scales are k-major, and split among the groups as
   the copies are; a w that has one tensor for both products is not k-major in
   dgrad, and has no gradient. */
int qg_match_product(struct qg_variant *v)
{
    const struct qg_kernels *k = v->kernels;
    int tokens = !strcmp(v->op, "wgrad");
    int packed = qg_recipe_packed(&v->recipe->scale[QN_W]);
    const char *b = "k";

    qg_recipe_factors(v->recipe, v->op, &v->a, &v->b);
    if ((k->recipe && strcmp(k->recipe, v->recipe->name)) || !takes(k, &v->a) ||
        !takes(k, &v->b))
        return 0;
    if (!v->a.scale && !v->b.scale)
        return !packed && v->a.element == v->b.element && k->scale.count == 1;
    if (tokens && (!v->a.scale || !v->b.scale))
        return 0;
    if (packed && !strcmp(v->op, "dgrad"))
        b = "mn";
    return !strcmp(v->layout->a, "k") && !strcmp(v->layout->b, b) &&
           !strcmp(v->ragged->name, tokens ? "k" : "m");
}

int qg_match_output(const struct qg_variant *v)
{
    return !v->kernels->d.count || has_type(&v->kernels->d, v->d);
}

/* Does the op exist for such scales, and does the template take the type?
   Tensors without scales can be an activation's result, and be summed. Plans
   take the epilogue of sums from a recipe without any, whatever theirs is. */
int qg_match_cast(const struct qg_variant *v)
{
    const struct qg_kernels *k = v->kernels;
    const struct qg_scale *scale = &v->recipe->scale[v->of];
    int spans = scale->block.span != QN_SPAN_BLOCK || scale->global;

    if (!has_type(&k->element, scale->element) ||
        !has_name(&k->scale, scale->blocked ? "blocked" : "none") ||
        (k->recipe && strcmp(k->recipe, v->recipe->name)))
        return 0;
    if (!scale->blocked)
        return strcmp(v->op, "epilogue") || qg_recipe_alone(v->recipe, v->of);
    if (!strcmp(v->op, "amax"))
        return spans && !scale->delayed.history;
    return strcmp(v->op, "history") || scale->delayed.history;
}

/* Activations make x, and their gradients come from dy. */
int qg_match_form(const struct qg_variant *v)
{
    if (!strcmp(v->form, "forward"))
        return v->of == QN_X && v->input != QG_IN_COPY;
    if (!strcmp(v->form, "backward"))
        return v->of == QN_DY && v->input != QG_IN_COPY;
    return 1;
}

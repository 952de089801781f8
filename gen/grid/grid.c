/* SPDX-License-Identifier: Apache-2.0 */
/*
** grid.c: from statements to kernels.
**
**   kernels statement x op x layout x ragged x recipe x output type x epilogue
**     x architecture = variant of a product
**   kernels statement x op x tensor x input x form x recipe x architecture
**     = variant of a cast
**   variant x axes = point: a kernel, or the sentence that rejects it
*/
#include "grid/grid.h"
#include "grid/param.h"
#include "lua/base.h"
#include "rule/rule.h"
#include "statement/word.h"

#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------- names to parts */

static struct qg_location field_place(struct qg *q, const struct qg_kernels *k,
                                      const char *field)
{
    return qg_lex_field(q, k->location, field, 1);
}

/* The statement that a field of that word names; NULL and noted. */
static const void *named(struct qg *q, const struct qg_kernels *k,
                         const char *field, const char *name)
{
    return qg_word_find(q, field, name, k->location);
}

/* Templates are known by now; whether they compile is seen when one is used. */
static void check_template(struct qg *q, struct qg_kernels *k)
{
    struct qg_nearest nearest;

    k->template_file = qg_files_template(q, k->template);
    if (k->template_file >= 0)
        return;
    qg_nearest_start(&nearest, k->template);
    for (int i = 0; i < q->nfiles; i++)
        if (q->files[i].kind == QG_TEMPLATE)
            qg_nearest_try(&nearest, q->files[i].name + strlen("templates/"));
    qg_diag_note(q, field_place(q, k, "template"), QG_E_UNKNOWN_TEMPLATE,
                 k->template,
                 qg_nearest_hint(&nearest, "it belongs below templates/", ""));
}

/* ------------------------------------------------------ shared by kernels */

/* The runtime evaluates these for each problem. */
static void share_rules(struct qg *q, struct qg_kernels *k)
{
    struct qn_requires *rules =
        qg_mem_array(q, (size_t)k->count, sizeof *rules);

    for (int i = 0; i < k->count; i++)
        if (k->items[i]->kind == QG_REQUIRES)
            rules[k->nrules++] =
                (struct qn_requires){k->items[i]->name, k->items[i]->reason};
    k->rules = rules;
}

/* ------------------------------------------------------------------ points */

/* The next choice in the order of counting; 0 after the last. */
static int next_choice(const struct qg_kernels *k, int *choice)
{
    int axis = 0, counts[QG_MAX_AXES];

    for (int i = 0; i < k->count; i++)
        if (k->items[i]->kind == QG_AXIS)
            counts[axis++] = k->items[i]->count;
    while (axis--) {
        if (++choice[axis] < counts[axis])
            return 1;
        choice[axis] = 0;
    }
    return 0;
}

/* Said once: the statements after the first have no room either, and are not
   told that they make nothing. */
static void too_many(struct qg *q, const struct qg_kernels *k)
{
    if (q->npoints++ == q->most)
        qg_diag_note(q, k->location, QG_E_POINTS, k->name, q->most,
                     QG_RECIPE_POINTS);
}

/* Returns 0, or 1 when the statement's other points are not worth trying. */
static int expand_points(struct qg *q, const struct qg_variant *variant)
{
    int choice[QG_MAX_AXES] = {0};

    do {
        struct qg_point *point;

        if (q->wanted && !qg_name_is(variant, choice, q->wanted))
            continue;
        if (q->npoints >= q->most) {
            too_many(q, variant->kernels);
            return 1;
        }
        point = qg_point_make(q, variant, choice);
        if (!point)
            return 1;
        point->next = q->points;
        q->points = point;
        q->npoints++;
    } while (next_choice(variant->kernels, choice));
    return 0;
}

/* The same, with the values that the points share. */
static int expand_axes(struct qg *q, struct qg_variant *variant)
{
    int done;

    if (q->wanted && !qg_name_begins(variant, q->wanted))
        return 0;
    variant->values = qg_variant_values(q, variant);
    done = expand_points(q, variant);
    luaL_unref(q->L, LUA_REGISTRYINDEX, variant->values);
    return done;
}

/* The statement's other lists: epilogues and architectures. */
static int expand_variant(struct qg *q, struct qg_variant *variant)
{
    const struct qg_kernels *k = variant->kernels;

    for (int i = 0; i < k->epilogue.count; i++)
        for (int j = 0; j < k->arch.count; j++) {
            variant->epilogue = k->epilogue.at[i];
            variant->arch = k->arch.at[j];
            if (expand_axes(q, variant))
                return 1;
        }
    return 0;
}

/* The recipe's output types, less those that the statement does without. */
static int expand_types(struct qg *q, struct qg_variant *variant)
{
    const struct qg_types *d = &variant->recipe->d;

    for (int i = 0; i < d->count; i++) {
        variant->d = d->at[i];
        if (qg_match_output(variant) && expand_variant(q, variant))
            return 1;
    }
    return 0;
}

/* Never only by a recipe's name: a new recipe gets every kernel that can
   serve it. */
static int expand_recipes(struct qg *q, struct qg_variant *variant)
{
    for (variant->recipe = q->recipes; variant->recipe;
         variant->recipe = variant->recipe->next)
        if (qg_match_product(variant) && expand_types(q, variant))
            return 1;
    return 0;
}

/* Returns 0, or 1 when the statement's other points are not worth trying. */
static int expand_ragged(struct qg *q, struct qg_variant *variant)
{
    const struct qg_kernels *k = variant->kernels;

    for (int i = 0; i < k->ragged.count; i++) {
        variant->ragged = named(q, k, "ragged", k->ragged.at[i]);
        if (variant->ragged && expand_recipes(q, variant))
            return 1;
    }
    return 0;
}

/* ------------------------------------------------------------------- casts */

/* Each recipe and architecture. Returns 0, or 1 as expand_axes does. */
static int cast_recipes(struct qg *q, struct qg_variant *v)
{
    const struct qg_kernels *k = v->kernels;

    for (v->recipe = q->recipes; v->recipe; v->recipe = v->recipe->next)
        for (int i = 0; i < k->arch.count && qg_match_cast(v); i++) {
            v->arch = k->arch.at[i];
            if (expand_axes(q, v))
                return 1;
        }
    return 0;
}

/* All casts of one op. */
static int expand_casts(struct qg *q, struct qg_variant *v)
{
    const struct qg_kernels *k = v->kernels;
    int n = k->input.count * k->form.count;

    for (int i = 0; i < k->of.count; i++)
        for (int j = 0; j < n; j++) {
            v->of = qg_list_find(&qg_list_ofs, k->of.at[i]);
            v->input =
                qg_list_find(&qg_list_inputs, k->input.at[j / k->form.count]);
            v->form = k->form.at[j % k->form.count];
            if (qg_match_form(v) && cast_recipes(q, v))
                return 1;
        }
    return 0;
}

/* Values that do not depend on the variant. */
static void prepare(struct qg *q, struct qg_kernels *k)
{
    /* a statement without recipe = takes all that match; one with it must find
       it, or a misspelled name would silently make no kernel */
    if (k->recipe)
        named(q, k, "recipe", k->recipe);
    check_template(q, k);
    share_rules(q, k);
}

/* All variants of one statement. An error in a function of the spec ends it:
   every other point would meet it again. */
static void expand_kernels(struct qg *q, struct qg_kernels *k)
{
    struct qg_variant variant = {.kernels = k};

    if (!k->rules)
        prepare(q, k);
    for (int i = 0; k->of.count && i < k->op.count; i++) {
        variant.op = k->op.at[i];
        if (expand_casts(q, &variant))
            return;
    }
    for (int i = 0; i < k->layout.count; i++) {
        variant.layout = named(q, k, "layout", k->layout.at[i]);
        for (int j = 0; variant.layout && j < k->op.count; j++) {
            variant.op = k->op.at[j];
            if (expand_ragged(q, &variant))
                return;
        }
    }
}

/* --------------------------------------------------------------- everything */

static int by_name(const void *a, const void *b)
{
    const struct qg_point *x = *(struct qg_point *const *)a;
    const struct qg_point *y = *(struct qg_point *const *)b;
    int order = strcmp(x->kernel.name, y->kernel.name);

    if (!order)
        order = (x->reason != NULL) - (y->reason != NULL);
    return order ? order : strcmp(x->kernel.spec, y->kernel.spec);
}

static void sort_points(struct qg *q)
{
    int i = 0;

    q->sorted = qg_mem_array(q, (size_t)q->npoints, sizeof(struct qg_point *));
    for (struct qg_point *point = q->points; point; point = point->next)
        q->sorted[i++] = point;
    if (i)
        qsort(q->sorted, (size_t)i, sizeof *q->sorted, by_name);
}

/* Two statements that make the same kernel; once for each pair. */
static void find_twins(struct qg *q)
{
    const struct qg_kernels *one = NULL, *two = NULL;

    for (int i = 1; i < q->npoints; i++) {
        const struct qg_point *a = q->sorted[i - 1], *b = q->sorted[i];

        if (a->reason || b->reason || strcmp(a->kernel.name, b->kernel.name) ||
            (a->kernels == one && b->kernels == two))
            continue;
        one = a->kernels;
        two = b->kernels;
        qg_diag_note(q, two->location,
                     one->extends || two->extends ? QG_E_EXTEND_TWICE
                                                  : QG_E_KERNEL_TWICE,
                     b->kernel.name, qg_files_print(q, one->location));
    }
}

/* Statements were put in front of each other; back into their order. */
#define REVERSE(type, list)                                                    \
    do {                                                                       \
        struct type *rest = list, *next;                                       \
        for (list = NULL; rest; rest = next) {                                 \
            next = rest->next;                                                 \
            rest->next = list;                                                 \
            list = rest;                                                       \
        }                                                                      \
    } while (0)

/* How a recipe's scales are stored. Returns 0, or 1 and noted. */
static int find_storage(struct qg *q, struct qg_scale *scale)
{
    scale->stored = qg_word_find(q, "storage", scale->storage, scale->location);
    return !scale->stored;
}

/* Tensors that share a description are looked at once. */
static void finish_recipe(struct qg *q, struct qg_recipe *recipe)
{
    int failed = 0;

    for (int of = 0; of < QN_TENSORS && !failed; of++) {
        struct qg_scale *scale = &recipe->scale[of];

        if (scale->blocked)
            failed = find_storage(q, scale) || qg_rule_trace_all(q, scale) ||
                     qg_trial_check(q, scale);
        if (scale->blocked && !failed)
            scale->stored_powers = qg_trial_powers(scale);
    }
}

static void begin(struct qg *q)
{
    size_t share;

    REVERSE(qg_recipe, q->recipes);
    REVERSE(qg_kernels, q->kernels);
    REVERSE(qg_kernels, q->extensions);
    qg_extend_apply(q);
    REVERSE(qg_shipped, q->shipped);
    /* a bound that was asked for is kept */
    share = q->bound == QG_MAX_MEMORY ? (size_t)QG_RECIPE_POINTS << 11 : 0;
    q->most = QG_MAX_POINTS;
    for (struct qg_recipe *r = q->recipes; r; r = r->next) {
        /* grids are bounded, not how many recipes a user has: each comes with
           room for the points that the grids make of it */
        q->most += QG_RECIPE_POINTS;
        q->bound += share;
        finish_recipe(q, r);
    }
}

/* Names are made for all points and compared, which takes a hundredth of the
   time of the points themselves. */
struct qg_point *qg_grid_one(struct qg *q, const char *name)
{
    struct qg_point *point;

    for (int made = 0; made < 2; made++) {
        for (point = q->points; point; point = point->next)
            if (!point->reason && !strcmp(point->kernel.name, name))
                return point;
        q->wanted = name;
        for (struct qg_kernels *k = q->kernels; k && !made; k = k->next)
            expand_kernels(q, k);
        q->wanted = NULL;
    }
    return NULL;
}

/* The values that all kernels of a lazy generator share. */
void qg_grid_expand(struct qg *q)
{
    begin(q);
    if (q->errors || q->lazy)
        return;
    for (struct qg_kernels *k = q->kernels; k; k = k->next) {
        int points = q->npoints, errors = q->errors;

        expand_kernels(q, k);
        if (q->npoints != points || q->errors != errors)
            continue;
        if (k->recipe)
            qg_diag_note(q, field_place(q, k, "recipe"), QG_E_NO_POINTS,
                         k->name, k->recipe);
        else if (k->extends)
            qg_diag_note(q, k->location, QG_E_EXTEND_NONE, k->name);
    }
    sort_points(q);
    if (!q->errors)
        find_twins(q);
    if (!q->errors)
        qg_shipped_mark(q);
    qg_evidence_mark(q);
}

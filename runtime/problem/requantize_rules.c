/* SPDX-License-Identifier: Apache-2.0 */
/* requantize_rules.c: which products may have their operands as FP8. */
#include "problem/requantize_rules.h"
#include "base/context.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/quantize.h"

#include <string.h>

/* ------------------------------------------------------------------- rules */

/* Scales of 128 values of a line, as the launches before write them.
                                    COUPLED: requantize */
static int is_lines(const struct qn_scaling *s)
{
    return s->span == QN_SPAN_BLOCK && s->type == QUERN_F32 && s->rows == 1 &&
           s->k == 128 && s->order == QN_ORDER_COLUMNS && s->pad_rows == 4 &&
           s->pad_columns == 1 && !s->global && !s->hadamard;
}

/* And of 128 x 128. */
static int is_squares(const struct qn_scaling *s)
{
    return s->span == QN_SPAN_BLOCK && s->type == QUERN_F32 && s->rows == 128 &&
           s->k == 128 && s->order == QN_ORDER_ROWS && s->pad_rows == 1 &&
           s->pad_columns == 4 && !s->global;
}

/* One for a whole row, or for a feature of a group. */
static int is_rows(const struct qn_scaling *s)
{
    return s->span == QN_SPAN_ROW && s->type == QUERN_F32 && !s->global &&
           !s->hadamard;
}

/* Do weights become rows, next to tokens that have a scale for each? */
static int has_rows(const struct qn_recipe *recipe)
{
    return recipe->scaling[QN_W].as == QUERN_E4M3;
}

/* Values of one tensor as the product takes them. */
static int is_scaled(const struct qn_scaling *s, int of, int rows)
{
    return rows ? is_rows(s) : of == QN_W ? is_squares(s) : is_lines(s);
}

static int is_target(const struct qn_recipe *r, int rows)
{
    int is = r->x == QUERN_E4M3 && r->w == QUERN_E4M3 && r->dy == QUERN_E4M3 &&
             r->promote == 128;

    for (int of = 0; of < QN_TENSORS; of++)
        is = is && is_scaled(&r->scaling[of], of, rows);
    return is;
}

const struct qn_recipe *qn_requantize_target(const struct quern_context *ctx,
                                             const struct qn_recipe *recipe)
{
    const struct quern_registry *const all[] = {ctx->base, ctx->linked};

    for (int i = 0; i < 2; i++)
        for (int r = 0; all[i] && r < all[i]->nrecipes; r++)
            if (is_target(&all[i]->recipes[r], has_rows(recipe)))
                return &all[i]->recipes[r];
    return NULL;
}

int qn_requantize_sums(const struct qn_recipe *recipe)
{
    return has_rows(recipe) && recipe->promote == 128;
}

/* As the product takes them already. */
static int is_coded(const struct qn_quantization *q,
                    const struct qn_recipe *recipe)
{
    return qn_quantize_element(q, recipe) == QUERN_E4M3 &&
           is_scaled(&recipe->scaling[q->of], q->of, has_rows(recipe));
}

int qn_requantize_does(const struct qn_problem *p,
                       const struct qn_recipe *recipe, int role)
{
    struct qn_quantization q;

    return qn_scale_source(p, recipe, role, &q) && !is_coded(&q, recipe);
}

/* The reason that one operand cannot be requantized; NULL: none. */
static const char *wrong_operand(const struct qn_problem *p,
                                 const struct qn_recipe *recipe, int role)
{
    struct qn_quantization q;
    const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);
    int type = qn_quantize_element(&q, recipe);

    if (s && is_coded(&q, recipe))
        return NULL;
    if (!s)
        return "values of 16 bits have more digits than e4m3";
    if (type == QUERN_E4M3 || type == QUERN_E5M2)
        return "e4m3's own values use all of e4m3's exponents: blocks whose "
               "scales differ have no scale in common";
    if (s->type == QUERN_E4M3)
        return "a scale of e4m3 has four digits of its own: a value times it "
               "has six, and e4m3 has four";
    if (type != QUERN_E2M1 || s->type != QUERN_E8M0 ||
        s->span != QN_SPAN_BLOCK || s->global)
        return "values of e2m1 with scales of e8m0 in one level are encoded "
               "again, no others";
    return NULL;
}

const char *qn_requantize_wrong(const struct quern_context *ctx,
                                const struct qn_problem *p,
                                const struct qn_recipe *recipe)
{
    const struct qn_recipe *target = qn_requantize_target(ctx, recipe);
    const char *why = NULL;

    for (int role = QN_ROLE_A; !why && role <= QN_ROLE_B; role++)
        why = wrong_operand(p, recipe, role);
    if (!why && !qn_requantize_does(p, recipe, QN_ROLE_A) &&
        !qn_requantize_does(p, recipe, QN_ROLE_B))
        why = "its operands are FP8 in blocks as they are";
    if (!why && !target)
        why = has_rows(recipe)
                  ? "no recipe has e4m3 with a scale for each row of x and w"
                  : "no recipe has e4m3 in blocks of 128 for x, w and dy";
    if (!why && !(target->d_types >> p->d_type & 1))
        why = "no recipe of such FP8 writes such a D";
    return why;
}

/* ---------------------------------------------------------------- operands */

void qn_requantize_product(const struct quern_context *ctx,
                           const struct qn_problem *p,
                           const struct qn_recipe *recipe,
                           struct qn_problem *product)
{
    *product = *p;
    memset(product->recipe, 0, sizeof product->recipe);
    strncpy(product->recipe, qn_requantize_target(ctx, recipe)->name,
            sizeof product->recipe - 1);
    product->sizes = QUERN_SIZES_DEVICE;
    product->dequantize = QUERN_DEQUANTIZE_AUTO;
}

void qn_requantize_copy(const struct qn_problem *p,
                        const struct qn_recipe *target, int role,
                        struct qn_tensor *copy)
{
    struct qn_quantization q;

    memset(copy, 0, sizeof *copy);
    qn_scale_source(p, target, role, &q);
    qn_quantize_copy(&q, target, q.copies, copy);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** scale.c: which of a recipe's copies a product reads, and how their scales
** are.
**
** A product reads copies that qn_quantize_run made, each k-major for it: of
** x or dy a rowwise tensor, of w the row or the columnwise tensor, and where
** tokens are summed two columnwise tensors. dgrad reads a w that has no
** columnwise tensor across its rows: it is not k-major there. So only
** quantize.c defines a quantized tensor; this file names the quantization and
** derives strides from it.
**                                             COUPLED: scales
*/
#include "problem/scale.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"

#include <string.h>

enum { TILE = 128, TILE_COLUMNS = 4 };

/* By op and role.                                  COUPLED: copies */
static const struct {
    int of, copy;
} sources[3][2] = {
    [QUERN_FPROP] = {{QN_X, QUERN_ROWWISE}, {QN_W, QUERN_ROWWISE}},
    [QUERN_DGRAD] = {{QN_DY, QUERN_ROWWISE}, {QN_W, QUERN_COLUMNWISE}},
    [QUERN_WGRAD] = {{QN_DY, QUERN_COLUMNWISE}, {QN_X, QUERN_COLUMNWISE}},
};

const struct qn_scaling *qn_scale_source(const struct qn_problem *p,
                                         const struct qn_recipe *recipe,
                                         int role, struct qn_quantization *q)
{
    int64_t lines = role == QN_ROLE_A ? p->m : p->n;
    int across; /* sums go along its columns */

    if (role > QN_ROLE_B)
        return qn_result_source(p, recipe, role, q);
    qn_quantize_clear(q);
    across = sources[p->op][role].copy == QUERN_COLUMNWISE;
    q->of = sources[p->op][role].of;
    if (recipe->scaling[q->of].type == QUERN_TYPE_NONE)
        return NULL;
    strcpy(q->recipe, p->recipe);
    q->work = QUERN_QUANTIZE;
    q->type = QUERN_BF16;
    q->copies = recipe->scaling[q->of].packed ? QUERN_ROWWISE
                                              : sources[p->op][role].copy;
    q->groups = p->groups;
    if (p->gather == QUERN_GATHER_A && role == QN_ROLE_A) {
        q->groups = 1; /* all of its rows, in order */
        lines = p->tokens;
    }
    q->m = across ? p->k : lines;
    q->k = across ? lines : p->k;
    return &recipe->scaling[q->of];
}

/* COUPLED: of values */
int qn_scale_of_values(const struct qn_problem *p,
                       const struct qn_recipe *recipe, int role,
                       const struct qn_scaling *s)
{
    struct qn_quantization q;
    int other = role == QN_ROLE_A ? QN_ROLE_B : QN_ROLE_A;

    return s && (!qn_scale_source(p, recipe, other, &q) ||
                 (s->span == QN_SPAN_BLOCK && s->type != QUERN_F32));
}

int qn_scale_blocks(const struct qn_recipe *recipe)
{
    int blocks = 0;

    for (int of = 0; of < QN_TENSORS && recipe; of++)
        blocks |= recipe->scaling[of].type != QUERN_TYPE_NONE &&
                  recipe->scaling[of].span == QN_SPAN_BLOCK;
    return blocks;
}

int qn_scale_any(const struct qn_problem *p, const struct qn_recipe *recipe)
{
    struct qn_quantization q;

    return qn_scale_source(p, recipe, QN_ROLE_A, &q) ||
           qn_scale_source(p, recipe, QN_ROLE_B, &q);
}

/* Scales of blocks: a matrix for each group of w, one for all of x or dy. */
static void lay_out(const struct qn_quantization *q, struct qn_scales *s)
{
    const struct qn_scaling *f = s->scaling;
    int column = s->copy == QUERN_COLUMNWISE, tokens = q->of != QN_W;
    int down = f->order == QN_ORDER_COLUMNS;
    const int each = qn_quantize_lines(f);
    int64_t rows = qn_quantize_ceil_div(column ? q->k : q->m, each);
    int64_t columns = qn_quantize_ceil_div(column ? q->m : q->k, f->k);
    int64_t tiles = tokens ? qn_quantize_tiles(q) : 0;

    if (tokens && column)
        columns = tiles * (down ? qn_quantize_tile_columns(f) : TILE / f->k);
    if (tokens && !column && each > 1)
        rows = tiles * (TILE / each);
    columns = qn_quantize_round_up(columns, f->pad_columns);
    rows = qn_quantize_round_up(rows, f->pad_rows);
    if (!tokens)
        s->group_stride = rows * columns;
    if (tokens && f->apart && down != column)
        return; /* each group's lines are as long as the group */
    s->stride = f->order == QN_ORDER_TILES
                    ? columns / TILE_COLUMNS * (TILE * TILE_COLUMNS)
                : down ? rows
                       : columns;
    if (!down || f->type != QUERN_F32)
        return;
    s->rows = rows ? rows : f->pad_rows;
    s->lines = tokens ? columns : columns * q->groups;
}

void qn_scale_of(const struct qn_problem *p, const struct qn_recipe *recipe,
                 int role, struct qn_scales *s)
{
    struct qn_quantization q;

    memset(s, 0, sizeof *s);
    s->scaling = qn_scale_source(p, recipe, role, &q);
    if (!s->scaling)
        return;
    s->copy = q.copies;
    s->of_values = qn_scale_of_values(p, recipe, role, s->scaling);
    switch (s->scaling->span) {
    case QN_SPAN_BLOCK:
        lay_out(&q, s);
        break;
    case QN_SPAN_ROW:
        s->stride = 1;
        if (s->copy == QUERN_COLUMNWISE)
            s->group_stride = q.k;
        else if (q.of == QN_W)
            s->group_stride = q.m;
        break;
    case QN_SPAN_GROUP:
        s->group_stride = 1;
        break;
    default:
        break;
    }
}

void qn_scale_columns(const struct qn_problem *p,
                      const struct qn_recipe *recipe, int role,
                      int64_t *columns, int64_t *pitch)
{
    struct qn_tensor copy = {0};
    struct qn_quantization q;

    if (!qn_scale_source(p, recipe, role, &q))
        return;
    qn_quantize_copy(&q, recipe, q.copies, &copy);
    *columns = copy.shape[copy.ndim - 1];
    *pitch = copy.stride ? copy.stride : *columns;
}

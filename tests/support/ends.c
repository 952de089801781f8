/* SPDX-License-Identifier: Apache-2.0 */
/* ends.c: the ends of the scales of blocks. */
#include "support/ends.h"

#include "base/types.h"
#include "problem/quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROW = 3, BLOCK = 1 };

const struct qt_end qt_ends[] = {
    {QUERN_E8M0, 0xff, QT_IS_NAN},     {QUERN_E8M0, 0xfe, QT_IS_LARGE},
    {QUERN_E8M0, 0x00, QT_IS_WITHOUT}, {QUERN_E4M3, 0x7f, QT_IS_NAN},
    {QUERN_E4M3, 0x00, QT_IS_WITHOUT},
};
const int qt_nends = sizeof qt_ends / sizeof qt_ends[0];

/* enum quern_of of the operand. */
static int tensor_of(const struct qt_case *c, int role)
{
    return role == QT_B ? QN_W : c->op == QUERN_FPROP ? QN_X : QN_DY;
}

const struct qn_scaling *qt_ends_scaling(const struct qt_case *c, int role)
{
    const struct qn_scaling *s =
        c->recipe ? &c->recipe->scaling[tensor_of(c, role)] : NULL;

    if (!s || c->ragged != QUERN_AXIS_M || s->span != QN_SPAN_BLOCK ||
        s->order != QN_ORDER_ROWS || s->apart ||
        (s->rows != 1 && role == QT_A) ||
        (s->type != QUERN_E8M0 && s->type != QUERN_E4M3))
        return NULL;
    return s;
}

void qt_ends_find(const struct qt_case *c, const struct qt_data *data, int role,
                  struct qt_block *b)
{
    const struct qn_scaling *s = qt_ends_scaling(c, role);
    const int types[] = {c->recipe->x, c->recipe->w, c->recipe->dy};
    const int bits = qn_type_bits(types[tensor_of(c, role)]);
    const int stored = bits == 4 ? 4 : 8; /* six have a byte */
    const int64_t row = role == QT_A ? c->start[0] + ROW : ROW;
    const int across = role == QT_B && c->b_major == QUERN_MAJOR_MN;
    const int64_t length = across ? c->n : c->k; /* of a line */
    const int64_t wide = qn_quantize_round_up(
        qn_quantize_ceil_div(length, s->k), s->pad_columns);

    *b = (struct qt_block){.role = role,
                           .row = row / s->rows * s->rows,
                           .lines = s->rows,
                           .pitch = (length * stored / 8 + 15) / 16 * 16,
                           .bytes = (size_t)(s->k * stored / 8),
                           .none = bits == 4 ? s->zero * 0x11 : s->zero,
                           .exact = across};
    b->column = across ? BLOCK * (int64_t)s->k : b->row;
    b->columns = across ? s->k : b->lines;
    b->codes = (unsigned char *)data->operand[role] + b->row * b->pitch +
               BLOCK * (int64_t)b->bytes;
    b->scale = (unsigned char *)data->sf[role] + row / s->rows * wide + BLOCK;
}

void qt_ends_clear(const struct qt_block *b, unsigned char *kept)
{
    for (int64_t i = 0; i < b->lines; i++) {
        memcpy(kept + (size_t)i * b->bytes, b->codes + i * b->pitch, b->bytes);
        memset(b->codes + i * b->pitch, b->none, b->bytes);
    }
}

void qt_ends_restore(const struct qt_block *b, const unsigned char *kept)
{
    for (int64_t i = 0; i < b->lines; i++)
        memcpy(b->codes + i * b->pitch, kept + (size_t)i * b->bytes, b->bytes);
}

/* Does the block count for this element of D? */
static int counts(const struct qt_case *c, const struct qt_block *b, int64_t i)
{
    const int64_t row = i / c->n, column = i % c->n;

    if (b->role == QT_A)
        return row == b->row;
    return row >= c->start[0] && row < c->start[0] + c->length[0] &&
           column >= b->column && column < b->column + b->columns;
}

/* May the block's part of an element, with the largest scale, be a number? Its
   part of before is known up to the roundings of both. */
static int may_fit(const struct qt_case *c, const struct qt_block *b,
                   float before, float without)
{
    const double rounding = c->d_type == QUERN_F32 ? 0x1p-20 : 0x1p-7;
    const double part =
        fabs((double)before - without) -
        rounding * (fabs((double)before) + fabs((double)without));

    return b->exact && ldexp(part, 254 - *b->scale) < 0x1p128;
}

int qt_ends_right(const struct qt_case *c, const struct qt_block *b,
                  const void *before, const void *after, const void *without,
                  enum qt_outcome outcome, char *text, size_t size)
{
    const size_t bytes = c->d_type == QUERN_F32 ? 4 : 2;

    for (int64_t i = 0; i < c->m * c->n; i++) {
        const size_t at = (size_t)i * bytes;
        const int in = counts(c, b, i);
        const float value = qt_load(after, c->d_type, i);
        const void *right = in ? without : before;
        const char *what = NULL;

        if (in && outcome == QT_IS_NAN && !isnan(value))
            what = "no NaN";
        else if (in && outcome == QT_IS_LARGE && isfinite(value) &&
                 !may_fit(c, b, qt_load(before, c->d_type, i),
                          qt_load(without, c->d_type, i)))
            what = "finite";
        else if ((!in || outcome == QT_IS_WITHOUT) &&
                 memcmp((const char *)right + at, (const char *)after + at,
                        bytes))
            what = "another";
        if (!what)
            continue;
        snprintf(text, size, "a scale of %s: row %lld, column %lld is %s",
                 b->role == QT_A ? "A" : "B", (long long)(i / c->n),
                 (long long)(i % c->n), what);
        return 0;
    }
    return 1;
}

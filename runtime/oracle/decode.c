/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c: the values that a quantized tensor stands for, in double. */
#include "oracle/decode.h"

#include <math.h>
#include <string.h>

#include "base/element.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/scale.h"

enum { TILE = 128 };

/* ------------------------------------------------------------------- codes */

/* A float of few bits: of its exponent and fraction, and the bias. */
struct format {
    int exponent, fraction, bias;
};

static struct format format_of(int type)
{
    switch (type) {
    case QUERN_E4M3:
        return (struct format){4, 3, 7};
    case QUERN_E5M2:
        return (struct format){5, 2, 15};
    case QUERN_E2M3:
        return (struct format){2, 3, 1};
    case QUERN_E3M2:
        return (struct format){3, 2, 3};
    default:
        return (struct format){2, 1, 1};
    }
}

/* E4M3 has one NaN of each sign, E5M2 all that IEEE has, the others none. */
static int special(int type, unsigned magnitude, double *value)
{
    if (type == QUERN_E4M3 && magnitude == 0x7f)
        *value = (double)NAN;
    else if (type == QUERN_E5M2 && magnitude >= 0x7c)
        *value = magnitude == 0x7c ? (double)INFINITY : (double)NAN;
    else
        return 0;
    return 1;
}

static double decode_integer(int type, unsigned code, int zero)
{
    if (type == QUERN_I8)
        return (signed char)code;
    if (type == QUERN_I4)
        return (int)(code ^ 8) - 8;
    return (int)code - zero;
}

double qn_decode_code(int type, unsigned code, int zero)
{
    struct format f = format_of(type);
    unsigned sign, magnitude, exponent, fraction;
    double value;

    if (qn_type_is_integer(type))
        return decode_integer(type, code, zero);
    if (type == QUERN_E8M0)
        return code == 0xff ? (double)NAN : ldexp(1, (int)code - 127);
    sign = code >> (f.exponent + f.fraction) & 1;
    magnitude = code & ((1u << (f.exponent + f.fraction)) - 1);
    exponent = magnitude >> f.fraction;
    fraction = magnitude & ((1u << f.fraction) - 1);
    if (!special(type, magnitude, &value))
        value = exponent ? ldexp((1u << f.fraction) + fraction,
                                 (int)exponent - f.bias - f.fraction)
                         : ldexp(fraction, 1 - f.bias - f.fraction);
    return sign ? -value : value;
}

/* ---------------------------------------------------------------- positions */

void qn_decode_begin(struct qn_decode *d, const struct qn_geometry *g,
                     const struct qn_tensor *copy, int groups,
                     const int64_t *starts, const int64_t *sizes)
{
    int64_t first = 0;

    *d = (struct qn_decode){.g = *g,
                            .data = copy->data,
                            .sf = copy->sf,
                            .global = copy->global,
                            .starts = starts,
                            .sizes = sizes};
    for (int i = 0; i < groups; i++) {
        d->firsts[i] = first;
        first += (sizes[i] + TILE - 1) / TILE;
    }
}

/* B of a dgrad that reads the rowwise tensor: a row of B is a column there. */
static int is_across(const struct qn_decode *d)
{
    return d->g.role == QN_ROLE_B && d->g.outer == QUERN_AXIS_K;
}

int64_t qn_decode_length(const struct qn_decode *d, int group)
{
    return is_across(d)        ? d->g.rows
           : d->g.inner_ragged ? qn_quantize_round_up(d->sizes[group], TILE)
                               : d->g.columns;
}

/* Element (i, j) of a matrix with lines of stride `stride`. */
static int64_t in_order(int order, int64_t stride, int64_t i, int64_t j)
{
    if (order == QN_ORDER_ROWS)
        return i * stride + j;
    if (order == QN_ORDER_COLUMNS)
        return j * stride + i;
    return i / 128 * stride + j / 4 * 512 + i % 32 * 16 + i % 128 / 32 * 4 +
           j % 4;
}

/* A columnwise tensor of tokens: groups are side by side, or one by one. */
static int64_t column_scale(const struct qn_decode *d, int group, int64_t i,
                            int64_t j)
{
    const struct qn_scaling *s = d->g.sf.scaling;
    int64_t rows = qn_quantize_round_up(
        qn_quantize_ceil_div(d->g.rows, qn_quantize_lines(s)), s->pad_rows);
    int64_t before = d->firsts[group];
    int64_t own = qn_quantize_round_up(
        qn_quantize_ceil_div(d->sizes[group], TILE) * (TILE / s->k),
        s->pad_columns);

    if (s->order == QN_ORDER_COLUMNS)
        own = rows;
    else if (!s->apart)
        return in_order(s->order, d->g.sf.stride, i,
                        before * (TILE / s->k) + j);
    else if (s->order == QN_ORDER_TILES)
        own *= TILE;
    return rows * before * qn_quantize_tile_columns(s) +
           in_order(s->order, own, i, j);
}

/* A rowwise tensor of tokens: one matrix for all groups, or one for each. */
static int64_t row_scale(const struct qn_decode *d, int group, int64_t i,
                         int64_t j)
{
    const struct qn_scaling *s = d->g.sf.scaling;
    int64_t columns = qn_quantize_round_up(
        qn_quantize_ceil_div(d->g.columns, s->k), s->pad_columns);
    int64_t before = d->firsts[group];
    int64_t stride = d->g.sf.stride;
    const int lines = qn_quantize_lines(s);

    if (!s->apart)
        return in_order(
            s->order, stride,
            i + (lines > 1 ? before * (TILE / lines) : d->starts[group]), j);
    if (s->order == QN_ORDER_COLUMNS)
        stride = qn_quantize_round_up(
            qn_quantize_ceil_div(d->sizes[group], lines), s->pad_rows);
    return before * qn_quantize_tile_rows(s) * columns +
           in_order(s->order, stride, i, j);
}

int64_t qn_decode_scale(const struct qn_decode *d, int group, int64_t row,
                        int64_t k)
{
    const struct qn_scaling *s = d->g.sf.scaling;
    const struct qn_scales *sf = &d->g.sf;
    int rows_of_all = !d->g.grouped && sf->copy == QUERN_ROWWISE;

    if (s->span == QN_SPAN_ROW)
        return row +
               (rows_of_all ? d->starts[group] : group * sf->group_stride);
    if (s->span != QN_SPAN_BLOCK)
        return group * sf->group_stride;
    row /= qn_quantize_lines(s);
    if (d->g.grouped)
        return group * sf->group_stride +
               in_order(s->order, sf->stride, row, k / s->k);
    return rows_of_all ? row_scale(d, group, row, k / s->k)
                       : column_scale(d, group, row, k / s->k);
}

/* ------------------------------------------------------------------ values */

/* The type of scales with zero points is that of the lower half of a word. */
static int half_of(int type)
{
    return type == QUERN_F16_ZERO    ? QUERN_F16
           : type == QUERN_BF16_ZERO ? QUERN_BF16
                                     : QUERN_TYPE_NONE;
}

static double load_scale(const struct qn_decode *d, int64_t at)
{
    int type = d->g.sf.scaling->type;

    if (half_of(type))
        return (double)qn_element_load(d->sf, half_of(type), 2 * (size_t)at);
    return qn_element_known(type)
               ? (double)qn_element_load(d->sf, type, (size_t)at)
               : qn_decode_code(type, ((const unsigned char *)d->sf)[at], 0);
}

/* The code of 0 in the block whose scale is at `at`: as many bits as codes have
   from a word's upper half. */
static int load_zero(const struct qn_decode *d, int64_t at)
{
    if (!half_of(d->g.sf.scaling->type))
        return d->g.sf.scaling->zero;
    return ((const uint16_t *)d->sf)[2 * at + 1] &
           ((1 << qn_type_bits(d->g.type)) - 1);
}

static double load_value(const struct qn_decode *d, int64_t at, int zero)
{
    if (qn_element_known(d->g.type))
        return (double)qn_element_load(d->data, d->g.type, (size_t)at);
    if (qn_type_bits(d->g.type) == 4)
        return qn_decode_code(d->g.type, d->data[at / 2] >> at % 2 * 4 & 15,
                              zero);
    return qn_decode_code(d->g.type, d->data[at], zero);
}

static int is_rounded(const struct qn_decode *d)
{
    return d->multiplied && d->g.sf.of_values;
}

static double round_to(int type, double value)
{
    uint32_t code = 0; /* room for any type */

    qn_element_store(&code, type, 0, (float)value);
    return (double)qn_element_load(&code, type, 0);
}

static void decode_column(const struct qn_decode *d, int group, int64_t column,
                          double *out)
{
    const struct qn_scaling *s = d->g.sf.scaling;
    const double global = s->global ? (double)d->global[group] : 1;

    for (int64_t i = 0; i < d->g.rows; i++) {
        const int64_t row = group * d->g.rows + i;
        const int64_t at = qn_decode_scale(d, group, i, column);
        const double value =
            load_value(d, row * d->g.pitch + column, load_zero(d, at)) *
            load_scale(d, at);

        out[i] =
            (is_rounded(d) ? round_to(d->multiplied, value) : value) * global;
    }
}

void qn_decode_row(const struct qn_decode *d, int group, int64_t row,
                   double *out)
{
    const struct qn_scaling *s = d->g.sf.scaling;
    int64_t block = s->span == QN_SPAN_BLOCK ? s->k : INT64_MAX;
    int64_t length = qn_decode_length(d, group), at = row * d->g.pitch;
    double global = s->global ? (double)d->global[group] : 1, scale = 0;
    int rounded = is_rounded(d), zero = 0;

    if (is_across(d)) {
        decode_column(d, group, row, out);
        return;
    }
    if (d->g.inner_ragged)
        at += d->firsts[group] * TILE;
    else if (d->g.grouped)
        at += group * d->g.rows * d->g.pitch;
    else
        at += d->starts[group] * d->g.pitch;
    for (int64_t k = 0; k < length; k++) {
        if (k % block == 0) {
            const int64_t shared = qn_decode_scale(d, group, row, k);

            scale = load_scale(d, shared);
            zero = load_zero(d, shared);
        }
        out[k] = load_value(d, at + k, zero) * scale;
        if (rounded)
            out[k] = round_to(d->multiplied, out[k]);
        out[k] *= global;
    }
}

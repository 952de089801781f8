//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ local from = input.type == "copy" and "its rowwise tensor" or input.type
** Quantize $(of) for $(recipe), from $(from): one matrix for each group.
**
**   row     [m, k]  $(element.type); ACROSS values along k share a scale and a zero point
**   column  [k, m]  the same along the rows: transposed
**   row_sf, column_sf  words: the scale, and in the upper half the zero point
**
** Either quantized tensor may be null. Persistent CTAs take tiles of 128 x 128. A warp has every
** 8th line of one, a lane four neighbours of it, so that maxima go through shuffles.
*/
//$ include "quantize/head.cu"

//$ include "quantize/store_sf.c"

//$ include "quantize/span.c"

/* From the distance of a block's least and largest value, 0 being one: the stored scale, and the
   values' factor. */
//$ rule "scale"

//$ if input.type == "copy" then
//$ include "quantize/value.c"
//$ else
typedef $(input.bits == 16 and "unsigned short" or "float") in_element;
//$ end
typedef $(element.bits == 4 and "unsigned short" or "unsigned int") four_codes;

enum { EACH = 4, SHARE = ACROSS / EACH /* lanes whose values share a scale */ };

/* The lanes' `x` become the largest ones of all that share a scale. */
FN float largest_of_lanes(float x)
{
#pragma unroll
    for (int distance = SHARE / 2; distance; distance /= 2) {
        const float other = __shfl_xor_sync(~0u, x, distance);
        x = other > x ? other : x;
    }
    return x;
}

//$ if input.type == "copy" then
/* The source: the rowwise tensor of a group. */
struct source {
    const unsigned char *row;
    const sf_element *sf;
    struct scales scales;
    long long stride;
};

FN float load_value(const struct source *s, int row, int f)
{
    const long long at = row * s->stride + f;
//$ if element.bits == 4 then
    const unsigned code = s->row[at / 2] >> at % 2 * 4 & 15;
//$ else
    const unsigned code = s->row[at];
//$ end

    return value_of(code, s->sf[scale_at(&s->scales, row, f / ACROSS)]);
}
//$ else
/* The source: a group's matrix. */
struct source {
    const in_element *in;
    long long stride;
};

FN float load_value(const struct source *s, int row, int f)
{
//$ if input.bits == 16 then
    return from_$(input.type)(s->in[row * s->stride + f]);
//$ else
    return s->in[row * s->stride + f];
//$ end
}
//$ end

FN four_codes codes_of(const float x[EACH], float factor, int zero)
{
    unsigned int codes = 0;

#pragma unroll
    for (int i = 0; i < EACH; i++)
        codes |= to_$(element.type)(mul_rn(x[i], factor), zero) << $(element.bits) * i;
    return (four_codes)codes;
}

/* One of a group's two tensors: its lines are rows, or features. */
struct copy {
    unsigned char *data;
    long long stride;   /* values from one line to the next */
    sf_element *sf;
    struct scales scales;
    int is_column, lines, length; /* values that a line has */
};

/* Four values of a line from `first` on, which are a lane's, past its end 0; all lanes of a warp
   have the same line. */
FN void cast_values(const struct copy *c, const struct source *s, int line, int first, int lane)
{
    struct span span = { 0, 0 };
    unsigned int sf;
    float x[EACH];

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = first + i, there = at < c->length;
        x[i] = there ? load_value(s, c->is_column ? at : line, c->is_column ? line : at) : 0;
        widen(&span, x[i]);
    }
    span.below = largest_of_lanes(span.below);
    span.above = largest_of_lanes(span.above);
    const float factor = scale_of(add_rn(span.below, span.above), &sf);
    const int zero = zero_point(&span, factor);
    if (lane % SHARE == 0)
        store_sf(c->sf, &c->scales, line, first / ACROSS, sf | (unsigned int)zero << 16);
    if (first < c->stride)
        *(four_codes *)(c->data + (line * c->stride + first) * $(element.bits) / 8) =
            codes_of(x, factor, zero);
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    struct scheduler w;
    struct tile t;

    //$ include "common/enter.body.cu"
    //$ include "quantize/begin.body.cu"
    while (scheduler_next(&w, &t)) {
        struct group g;

        //$ include "quantize/group.body.cu"
//$ if input.type == "copy" then
        const long long before = (long long)g.number * m * row_stride;
        const struct source source = { row + before * $(element.bits) / 8,
                                       (const sf_element *)row_sf, row_scales(&g, &all),
                                       row_stride };
//$ else
        const long long matrix = in_pointers ? 0 : (long long)g.number * m * in_stride;
        const struct source source = {
            (const in_element *)(in_pointers ? in_pointers[g.number] : in) + matrix, in_stride
        };
//$ end
        for (int side = $(input.type == "copy" and 1 or 0); side < 2; side++) {
            const long long first = (long long)g.number * (side ? k : m);
            const struct copy c = {
                side ? column + first * column_stride * $(element.bits) / 8
                     : row + first * row_stride * $(element.bits) / 8,
                side ? column_stride : row_stride, (sf_element *)(side ? column_sf : row_sf),
                side ? column_scales(&g, &all) : row_scales(&g, &all),
                side, side ? k : m, side ? m : k
            };
            const int line = side ? t.column : t.row, value = side ? t.row : t.column;

            if (!(side ? column : row))
                continue;
            for (int i = line + warp; i < line + TILE_M && i < c.lines; i += THREADS / 32)
                cast_values(&c, &source, i, value + EACH * lane, lane);
        }
    }
    //$ include "quantize/end.body.cu"
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "quantize/operands.cu"

/* Two results as the type of the input holds them. */
FN packed round_pair(float lo, float hi)
{
//$ if input.bits == 16 then
    return to_$(input.type)_x2(lo, hi);
//$ else
    return pack(lo, hi);
//$ end
}

/* Which result operand f went into, and whether it is the second one. */
FN int result_of(const struct source *s, int f, int *is_second)
{
    const int run = s->interleave, half = s->all.k / 2;

    *is_second = 0;
    if (!(GATED >> s->activation & 1))
        return f;
    *is_second = run ? f / run % 2 : f >= half;
    return run ? f / (2 * run) * run + f % run : f - (f >= half ? half : 0);
}

enum { AT_ONCE = 8 }; /* rows whose operands are loaded together */

/* Two features of AT_ONCE rows from `one` and `two` on; zeros after the first `rows`. */
template <int PAIRED> FN void load_some(packed x[AT_ONCE], const in_element *one,
                                        const in_element *two, long long stride, int rows)
{
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        x[i] = pack(0, 0);
        if (i < rows)
            x[i] = load_pair<PAIRED>(one, two);
        one += stride;
        two += stride;
    }
}

FN void load_some(packed x[AT_ONCE], const struct source *s, const in_element *row,
                  const long long at[2], long long stride, int rows)
{
    if (s->paired)
        load_some<1>(x, row + at[0], row + at[1], stride, rows);
    else
        load_some<0>(x, row + at[0], row + at[1], stride, rows);
}

/* fill, of activation WHICH. */
template <int WHICH> FN void fill_with(packed *v, const struct source *s, const struct group *g,
                                       int row, int f)
{
    const int next = f + 1 < s->all.k ? f + 1 : f;
    const long long first = (long long)g->start + row;
    const in_element *in = (const in_element *)s->in + first * s->in_stride;
    const float *probability = s->probability + (s->probability ? first : 0);
    int rows = f < s->all.k ? g->length - row : 0;
    struct operands o;
//$ if form == "forward" then
    const in_element *from = in;
    const long long stride = s->in_stride;

    find_operands(s, &o, 0, f, s->all.k);
    find_operands(s, &o, 1, next, s->all.k);
//$ else
    const in_element *from = (const in_element *)s->saved + first * s->saved_stride;
    const long long stride = s->saved_stride;
    int second[2];
    const long long result[2] = { result_of(s, f, &second[0]), result_of(s, next, &second[1]) };

    find_operands(s, &o, 0, (int)result[0], s->all.k / 2);
    find_operands(s, &o, 1, (int)result[1], s->all.k / 2);
//$ end
#pragma unroll 1
    for (int begin = 0; begin < ROWS; begin += AT_ONCE) {
        packed x[AT_ONCE], y[AT_ONCE];
        float p[AT_ONCE];
//$ if form == "backward" then
        packed dy[AT_ONCE];
//$ end

        if (rows <= 0) { /* of this warp, no row is left */
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                v[i * LINE] = pack(0, 0);
            v += AT_ONCE * LINE;
            continue;
        }
//$ if form == "backward" then
        load_some(dy, s, in, result, s->in_stride, rows);
//$ end

        load_some(x, s, from, o.a, stride, rows);
        load_some(y, s, from, o.b, stride, rows);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            p[i] = probability && i < rows ? probability[begin + i] : 1;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const float a[2] = { lo_of(x[i]), hi_of(x[i]) }, b[2] = { lo_of(y[i]), hi_of(y[i]) };
            float z[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
//$ if form == "forward" then
                z[j] = mul_rn(activate(WHICH, a[j], b[j], s->limit, s->slope, s->shift), p[i]);
//$ else
                const struct gradient d =
                    activate_gradient(WHICH, a[j], b[j], s->limit, s->slope, s->shift);
                z[j] = mul_rn(mul_rn(j ? hi_of(dy[i]) : lo_of(dy[i]), p[i]),
                              second[j] ? d.b : d.a);
//$ end
            }
            v[i * LINE] = i < rows ? round_pair(z[0], next > f ? z[1] : 0) : pack(0, 0);
        }
        v += AT_ONCE * LINE;
        in += AT_ONCE * s->in_stride;
        from += AT_ONCE * stride;
        rows -= AT_ONCE;
    }
}

//$ if form == "forward" then
/*
** The thread's values, row `row` of the group and feature f being the first: act(a, b), times the
** row's probability.
*/
//$ else
/*
** The thread's values, row `row` of the group and feature f being the first: the gradients of
** operands, from those of the results that they went into.
*/
//$ end
FN void fill(packed *v, const struct source *s, const struct group *g, int row, int f)
{
    switch (s->activation) {
//$ for i in ipairs(activations) do
    case $(i):
        fill_with<$(i)>(v, s, g, row, f);
        break;
//$ end
    }
}

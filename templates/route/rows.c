//$ -- SPDX-License-Identifier: Apache-2.0
enum { IN_COPY, IN_BF16, IN_F16, IN_F32 }; /* types of values; COUPLED: types */
enum { EACH = 8 };                         /* neighbours that are read together */

//$ once "cast/arith.c"
//$ once "cast/from_bf16.c"
//$ once "cast/from_f16.c"
//$ once "cast/to_bf16.c"
//$ once "cast/to_f16.c"

/* Tokens and rows of experts, of `type`. Strides are in elements. */
struct moves {
    int type, m, topk, k;
    const int *inverse;       /* [m, topk] rows */
    const float *probability; /* [m, topk], or null */
    const char *in, *rows, *residual;
    char *out;
    long long in_stride, rows_stride, residual_stride, out_stride;
    const unsigned long long *addresses; /* of tokens, in place of out; or null */
};

/* The row of a pair, never outside of the buffer; -1: none. */
FN int row_of(const struct moves *w, int pair)
{
    const int row = w->inverse[pair];

    return row >= 0 && row < w->m * w->topk ? row : -1;
}

/* The address of feature f in a row. */
FN long long place_of(const struct moves *w, long long row, long long stride, int f)
{
    return (row * stride + f) * (w->type == IN_F32 ? 4 : 2);
}

/* May eight values be read, or written, in vectors of 16 bytes? */
FN int is_whole(const void *at, int count)
{
    return count >= EACH && (unsigned long long)at % 16 == 0;
}

/* May all values of rows at this address and stride? */
FN int is_even(const struct moves *w, const void *at, long long stride)
{
    return (unsigned long long)at % 16 == 0 && place_of(w, 1, stride, 0) % 16 == 0 &&
           w->k % EACH == 0;
}

FN void load_whole(const uint4 *at, int type, float x[EACH])
{
    const uint4 lo = at[0];
    const unsigned word[4] = { lo.x, lo.y, lo.z, lo.w };

    if (type == IN_F32) {
        const uint4 hi = at[1];
        const unsigned more[4] = { hi.x, hi.y, hi.z, hi.w };

#pragma unroll
        for (int i = 0; i < EACH / 2; i++) {
            x[i] = float_of(word[i]);
            x[i + EACH / 2] = float_of(more[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const unsigned code = word[i / 2] >> i % 2 * 16 & 0xffff;

        x[i] = type == IN_BF16 ? from_bf16(code) : from_f16(code);
    }
}

FN void store_whole(uint4 *to, int type, const float x[EACH])
{
    unsigned word[EACH];

#pragma unroll
    for (int i = 0; i < EACH; i++)
        word[i] = bits_of(x[i]);
    if (type != IN_F32) {
#pragma unroll
        for (int i = 0; i < EACH / 2; i++)
            word[i] = type == IN_BF16 ? to_bf16_x2(x[2 * i], x[2 * i + 1])
                                      : to_f16_x2(x[2 * i], x[2 * i + 1]);
    }
    to[0] = make_uint4(word[0], word[1], word[2], word[3]);
    if (type == IN_F32)
        to[1] = make_uint4(word[4], word[5], word[6], word[7]);
}

/* Up to eight values, `count` of them; the others are 0. */
FN void load(const void *from, int type, int count, float x[EACH])
{
//$ if arch ~= "host" then
    if (is_whole(from, count)) {
        load_whole((const uint4 *)from, type, x);
        return;
    }
#pragma unroll
//$ end
    for (int i = 0; i < EACH; i++) {
        const int there = i < count;

        if (type == IN_F32) {
            x[i] = there ? ((const float *)from)[i] : 0;
        } else {
            const unsigned code = there ? ((const unsigned short *)from)[i] : 0;

            x[i] = type == IN_BF16 ? from_bf16(code) : from_f16(code);
        }
    }
}

FN void store(void *to, int type, int count, const float x[EACH])
{
//$ if arch ~= "host" then
    if (is_whole(to, count)) {
        store_whole((uint4 *)to, type, x);
        return;
    }
#pragma unroll
//$ end
    for (int i = 0; i < EACH; i++) {
        if (i >= count)
            continue;
        if (type == IN_F32)
            ((float *)to)[i] = x[i];
        else
            ((unsigned short *)to)[i] =
                (unsigned short)(type == IN_BF16 ? to_bf16(x[i]) : to_f16(x[i]));
    }
}

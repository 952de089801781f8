//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "route/permute.c"

enum { SPAN = 2, SPAN_FEATURES = SPAN * 32 * EACH };

/* Eight values of 16 bits, or of 32. */
struct eight {
    uint4 lo, hi;
};

FN struct eight load_eight(const uint4 *at, int type)
{
    const uint4 none = { 0, 0, 0, 0 };
    const struct eight x = { at[0], type == IN_F32 ? at[1] : none };

    return x;
}

FN void store_eight(uint4 *to, int type, const struct eight *x)
{
    to[0] = x->lo;
    if (type == IN_F32)
        to[1] = x->hi;
}

/* The same, each times a factor, rounded once. */
FN void store_weighted(uint4 *to, int type, const struct eight *x, float weight)
{
    const uint4 words[2] = { x->lo, x->hi };
    float values[EACH];

    load_whole(words, type, values);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        values[i] = mul_rn(values[i], weight);
    store_whole(to, type, values);
}

/*
** A span of a token's features, in vectors, to all of its rows: each value is read once. A lane has
** the row of one pair. Called by all lanes of a warp.
*/
FN void spread(const struct moves *w, int token, int begin, int lane)
{
    const int pair = token * w->topk + (lane < w->topk ? lane : 0);
    const int own = row_of(w, pair);
    const float factor = w->probability ? w->probability[pair] : 1;
    struct eight x[SPAN];

#pragma unroll
    for (int i = 0; i < SPAN; i++) {
        const int f = begin + (i * 32 + lane) * EACH;

        if (f < w->k)
            x[i] = load_eight((const uint4 *)(w->in + place_of(w, token, w->in_stride, f)),
                              w->type);
    }
    for (int choice = 0; choice < w->topk; choice++) {
        const int row = __shfl_sync(~0u, own, choice);
        const float weight = __shfl_sync(~0u, factor, choice);

        if (row < 0)
            continue;
#pragma unroll
        for (int i = 0; i < SPAN; i++) {
            const int f = begin + (i * 32 + lane) * EACH;
            uint4 *to = (uint4 *)(w->out + place_of(w, row, w->out_stride, f));

            if (f < w->k && w->probability)
                store_weighted(to, w->type, &x[i], weight);
            else if (f < w->k)
                store_eight(to, w->type, &x[i]);
        }
    }
}

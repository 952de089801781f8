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

/* May tokens be moved in vectors? */
FN int is_spread(const struct moves *w)
{
    return is_even(w, w->in, w->in_stride) && is_even(w, w->out, w->out_stride);
}

/* Parts that warps move: spans of tokens, or whole ones. */
FN long long count_moves(const struct moves *w)
{
    const int spans = is_spread(w) ? (w->k - 1) / SPAN_FEATURES + 1 : 1;

    return w->out ? (long long)w->m * spans : 0;
}

/* All tokens to their rows, without their gradient: a warp has each of `warps` parts. */
FN void move_rows(const struct moves *w, int warp, int warps, int lane)
{
    const int spans = (w->k - 1) / SPAN_FEATURES + 1, whole = !is_spread(w);

    for (long long i = warp; i < count_moves(w); i += warps) {
        if (!whole) {
            spread(w, (int)(i / spans), (int)(i % spans) * SPAN_FEATURES, lane);
            continue;
        }
        for (int pair = (int)i * w->topk; pair < ((int)i + 1) * w->topk; pair++)
            if (row_of(w, pair) >= 0)
                move_pair(w, (int)i, pair, row_of(w, pair), lane);
    }
}

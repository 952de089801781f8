//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "route/combine.c"

enum { AHEAD = 4 }; /* rows on their way */

/* One row's values of 16 bits, if it is one, times its factor. */
FN void add_row(const struct moves *w, int row, float factor, uint4 words, float sum[EACH])
{
    float x[EACH];

    if (row < 0)
        return;
    load_whole(&words, w->type == IN_BF16 ? IN_BF16 : IN_F16, x);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum[i] = add_rn(sum[i], w->probability ? mul_rn(factor, x[i]) : x[i]);
}

/*
** As combine(), in vectors of 16-bit values: a few rows are read at once and added in the order of
** k. A lane has the row of one pair. Called by all lanes of a warp, some of which may have no
** features.
*/
FN void gather_rows(const struct moves *w, int token, int f, int lane)
{
    const int pair = token * w->topk + (lane < w->topk ? lane : 0);
    const int own = lane < w->topk ? row_of(w, pair) : -1, there = f < w->k;
    const float weight = w->probability ? w->probability[pair] : 1;
    const int has_rows = __any_sync(~0u, own >= 0);
    float sum[EACH] = { 0 }, x[EACH];
    char *to;

    for (int first = 0; first < w->topk; first += AHEAD) {
        uint4 words[AHEAD];
        float factors[AHEAD];
        int rows[AHEAD];

#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            rows[i] = __shfl_sync(~0u, own, (first + i) % 32);
            factors[i] = __shfl_sync(~0u, weight, (first + i) % 32);
            if (first + i >= w->topk || !there)
                rows[i] = -1;
            if (rows[i] >= 0)
                words[i] = *(const uint4 *)(w->in + place_of(w, rows[i], w->in_stride, f));
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            add_row(w, rows[i], factors[i], words[i], sum);
    }
    if (!there)
        return;
    if (w->residual) {
        load(w->residual + place_of(w, token, w->residual_stride, f), w->type, EACH, x);
        for (int i = 0; i < EACH; i++)
            sum[i] = add_rn(sum[i], x[i]);
    }
    to = target_of(w, token, f, has_rows);
    if (to)
        store(to, w->type, EACH, sum);
}

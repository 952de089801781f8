//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "route/rows.c"

/* Eight features of one token from f on: the sum of its rows times their probabilities in the order
   of k, then the residual; in fp32, rounded once. */
FN void combine(const struct moves *w, int token, int f)
{
    const int count = w->k - f;
    float sum[EACH] = { 0 }, x[EACH];

    for (int pair = token * w->topk; pair < (token + 1) * w->topk; pair++) {
        const int row = row_of(w, pair);

        if (row < 0)
            continue;
        load(w->in + place_of(w, row, w->in_stride, f), w->type, count, x);
        for (int i = 0; i < EACH; i++)
            sum[i] = add_rn(sum[i], w->probability ? mul_rn(w->probability[pair], x[i]) : x[i]);
    }
    if (w->residual) {
        load(w->residual + place_of(w, token, w->residual_stride, f), w->type, count, x);
        for (int i = 0; i < EACH; i++)
            sum[i] = add_rn(sum[i], x[i]);
    }
    store(w->out + place_of(w, token, w->out_stride, f), w->type, count, sum);
}

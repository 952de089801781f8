//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "route/rows.c"

/* The address of feature f of a token; null: it is not written, as tokens without rows are not that
   have addresses. */
FN char *target_of(const struct moves *w, int token, int f, int has_rows)
{
    const int bytes = w->type == IN_F32 ? 4 : 2;

    if (!w->addresses)
        return w->out + place_of(w, token, w->out_stride, f);
    return has_rows && w->addresses[token] ? (char *)w->addresses[token] + (long long)f * bytes : 0;
}

/* Eight features of one token from f on: the sum of its rows times their probabilities in the order
   of k, then the residual; in fp32, rounded once. */
FN void combine(const struct moves *w, int token, int f)
{
    const int count = w->k - f;
    float sum[EACH] = { 0 }, x[EACH];
    int has_rows = 0;
    char *to;

    for (int pair = token * w->topk; pair < (token + 1) * w->topk; pair++) {
        const int row = row_of(w, pair);

        if (row < 0)
            continue;
        has_rows = 1;
        load(w->in + place_of(w, row, w->in_stride, f), w->type, count, x);
        for (int i = 0; i < EACH; i++)
            sum[i] = add_rn(sum[i], w->probability ? mul_rn(w->probability[pair], x[i]) : x[i]);
    }
    if (w->residual) {
        load(w->residual + place_of(w, token, w->residual_stride, f), w->type, count, x);
        for (int i = 0; i < EACH; i++)
            sum[i] = add_rn(sum[i], x[i]);
    }
    to = target_of(w, token, f, has_rows);
    if (to)
        store(to, w->type, count, sum);
}

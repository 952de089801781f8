//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "route/rows.c"

/*
** One pair's row: its token's values times the probability, each rounded once. A lane has eight
** features of every 256, in ascending order; the result is its part of the sum of token times row,
** if there are rows. All in fp32.                                      COUPLED: dprob
*/
FN float move_pair(const struct moves *w, int token, int pair, int row, int lane)
{
    const float weight = w->probability ? w->probability[pair] : 1;
    float sum = 0, x[EACH], y[EACH];

    for (int f = EACH * lane; f < w->k; f += EACH * 32) {
        const int count = w->k - f;

        load(w->in + place_of(w, token, w->in_stride, f), w->type, count, x);
        if (w->rows) {
            load(w->rows + place_of(w, row, w->rows_stride, f), w->type, count, y);
            for (int i = 0; i < EACH; i++)
                sum = i < count ? add_rn(sum, mul_rn(x[i], y[i])) : sum;
        }
        if (w->out) {
            for (int i = 0; i < EACH; i++)
                x[i] = w->probability ? mul_rn(x[i], weight) : x[i];
            store(w->out + place_of(w, row, w->out_stride, f), w->type, count, x);
        }
    }
    return sum;
}

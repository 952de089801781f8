//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Tokens to rows of experts, on the host, and the gradient of their probabilities: as the kernels
** for GPUs have it, with the same bits.
*/
#define FN static inline __attribute__((unused))

//$ include "route/permute.c"

//$ include "host/sum_lanes.c"

void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    const struct moves w = { input, m, topk, k, inverse, probability, (const char *)in,
                             (const char *)rows, 0, (char *)out, in_stride, rows_stride, 0,
                             out_stride, 0 };

    for (int token = worker; token < m; token += workers)
        for (int pair = token * topk; pair < (token + 1) * topk; pair++) {
            const int row = row_of(&w, pair);
            float sums[32] = { 0 };

            if (row_numbers && row >= 0)
                row_numbers[row] = pair_numbers[pair];
            for (int lane = 0; lane < 32 && row >= 0; lane++)
                sums[lane] = move_pair(&w, token, pair, row, lane);
            if (dprob)
                dprob[pair] = sum_lanes(sums);
        }
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Rows of experts to tokens, on the host: as the kernels for GPUs have it, with the same bits.
*/
#define FN static inline __attribute__((unused))

//$ include "route/combine.c"

void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    const struct moves w = { input, m, topk, k, inverse, probability, (const char *)in, 0,
                             (const char *)c, (char *)out, in_stride, 0, c_stride, out_stride,
                             addresses };

    for (int token = worker; token < m; token += workers) {
        for (int pair = token * topk; row_numbers && pair < (token + 1) * topk; pair++)
            pair_numbers[pair] = row_of(&w, pair) < 0 ? 0 : row_numbers[row_of(&w, pair)];
        for (int f = 0; (out || addresses) && f < k; f += EACH)
            combine(&w, token, f);
    }
}

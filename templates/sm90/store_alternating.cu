//$ -- SPDX-License-Identifier: Apache-2.0
//$ local of16 = d.bytes == 2
/*
** Results of neighbouring columns of P: of 8 columns of D, lane l of 4 has the columns l and l + 4.
** Lanes exchange them, and have the columns 2 l and 2 l + 1, as of a product's sums.
//$ if of16 then
** Each word comes with a row's columns l and l + 4.
//$ end
*/
FN void exchange(unsigned int *first, unsigned int *second, int lane)
{
    const int odd = lane % 2, upper = lane / 2 % 2;
    const int from = (lane & 28) | lane % 2 * 2 | upper;
//$ if of16 then
    const unsigned int low = 0x5410, high = 0x7632; /* halves of two words */
    const unsigned int given = __byte_perm(*first, *second, odd ? high : low);
    const unsigned int other = __byte_perm(*first, *second, odd ? low : high);
//$ else
    const unsigned int given = odd ? *second : *first, other = odd ? *first : *second;
//$ end
    const unsigned int near = __shfl_sync(~0u, given, from);
    const unsigned int far = __shfl_sync(~0u, other, from ^ 1);

//$ if of16 then
    *first = __byte_perm(near, far, upper ? 0x1054 : low);
    *second = __byte_perm(near, far, upper ? 0x3276 : high);
//$ else
    *first = upper ? far : near;
    *second = upper ? near : far;
//$ end
}

//$ if of16 then
/* Four results: of each of two fragments of P, rows r and r + 8. Words of these rows of D. */
FN void exchange_results(const float result[4], unsigned int word[2], int lane)
{
    word[0] = pack(result[0], result[2]);
    word[1] = pack(result[1], result[3]);
    exchange(&word[0], &word[1], lane);
}

/* One warp's results into a slab, as fill_slab does with sums. */
FN void fill_results(unsigned int slab, const float *result, int lane)
{
    const int row = lane % 16;

    for (int j = 0; j < 4; j++) {
        const int chunk = 2 * j + lane / 16;
        unsigned int one[2], two[2];

        exchange_results(result + 8 * j, one, lane);
        exchange_results(result + 8 * j + 4, two, lane);
        store_matrix_x4(slab + row * 128 + (chunk ^ row % 8) * 16, one[0], one[1], two[0], two[1]);
    }
}
//$ else
/* One warp's results into a slab, as fill_slab does with sums. */
FN void fill_results(unsigned int slab, const float *result, int lane)
{
    float sum[SLAB_COLUMNS / 2];

    for (int i = 0; i < SLAB_COLUMNS / 2; i += 4)
        for (int j = 0; j < 2; j++) {
            unsigned int one = __float_as_uint(result[i + j]);
            unsigned int two = __float_as_uint(result[i + j + 2]);

            exchange(&one, &two, lane);
            sum[i + 2 * j] = __uint_as_float(one);
            sum[i + 2 * j + 1] = __uint_as_float(two);
        }
    fill_slab(slab, sum, lane);
}
//$ end

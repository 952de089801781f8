//$ -- SPDX-License-Identifier: Apache-2.0
//$ if addend == "fetch" then
/*
** One warp's 16 rows x 32 columns, added to the fp32 that is in a slab of 16 swizzled rows of 128
** bytes: each thread reads just the words that it then writes. Odd rows take their chunks in
** another order, so that the 4 rows of 16 threads, which access shared memory together, meet in no
** bank.
*/
FN void add_to_slab(unsigned int slab, const float *sum, int lane)
{
    const int row = lane / 4, odd = row % 2;
    unsigned int at[4];
    float c[16];

#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int chunk = 2 * (odd ? j ^ 2 : j) + lane % 4 / 2;
        at[j] = slab + row * 128 + (chunk ^ row) * 16 + lane % 2 * 8;
        load_shared_x2(at[j], &c[4 * j], &c[4 * j + 1]);
        load_shared_x2(at[j] + 8 * 128, &c[4 * j + 2], &c[4 * j + 3]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        c[i] += odd ? sum[i ^ 8] : sum[i];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        store_shared_x2(at[j], c[4 * j], c[4 * j + 1]);
        store_shared_x2(at[j] + 8 * 128, c[4 * j + 2], c[4 * j + 3]);
    }
}
//$ else
/* One warp's 16 rows x 32 columns as fp32 into a slab of 16 swizzled rows of 128 bytes. */
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    const int row = lane / 4;

    for (int j = 0; j < 4; j++) {
        const int chunk = 2 * j + lane % 4 / 2;
        const unsigned int to = slab + row * 128 + (chunk ^ row) * 16 + lane % 2 * 8;
        store_shared_x2(to, sum[4 * j], sum[4 * j + 1]);
        store_shared_x2(to + 8 * 128, sum[4 * j + 2], sum[4 * j + 3]);
    }
}
//$ end

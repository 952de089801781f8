//$ -- SPDX-License-Identifier: Apache-2.0
//$ local row_bytes = d_box[1] * 4
/*
** One warp's 16 rows x SLAB_COLUMNS as fp32 into a slab of 16 swizzled rows of $(row_bytes) bytes.
** Its threads hold columns of D as rows: sums of 16 begin ROWS / 2 after those of others.
*/
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    for (int i = 0; i < SLAB_COLUMNS / 8; i++)
        for (int j = 0; j < 4; j++) {
            const int row = j / 2 * 8 + lane % 4 * 2 + j % 2;
            const int chunk = (2 * i + lane / 16) ^ row / $(128 // row_bytes) % $(row_bytes // 16);
            store_shared(slab + row * $(row_bytes) + chunk * 16 + lane / 4 % 4 * 4,
                         sum[i / 2 * (ROWS / 2) + j / 2 * 4 + i % 2 * 2 + j % 2]);
        }
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** One warp's 16 rows x 16 columns as fp32 into a slab of 16 swizzled rows of 64 bytes. Its threads
** hold two columns of D side by side as rows of which one is 8 below the other.
*/
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    for (int i = 0; i < 4; i++) {
        const int row = i / 2 * 8 + lane % 4 * 2 + i % 2;
        const float *s = sum + i / 2 * 4 + i % 2;
        const unsigned int to =
            slab + row * 64 + (lane / 8 ^ row / 2 % 4) * 16 + lane / 4 % 2 * 8;

        store_shared(to, s[0]);
        store_shared(to + 4, s[2]);
    }
}

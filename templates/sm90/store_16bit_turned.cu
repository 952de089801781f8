//$ -- SPDX-License-Identifier: Apache-2.0
//$ local row_bytes = d_box[1] * 2
FN unsigned int pack(float lo, float hi)
{
    unsigned int packed;
    asm("cvt.rn.$(d.type)x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}

/*
** One warp's 16 rows x SLAB_COLUMNS as $(d.type) into a slab of 16 swizzled rows of $(row_bytes)
** bytes. Its threads hold columns of D as rows: sums of 16 begin ROWS / 2 after those of others.
*/
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    const int row = lane / 16 * 8 + lane % 8;

    for (int i = 0; i < SLAB_COLUMNS / 16; i++) {
        const int chunk =
            (2 * i + lane / 8 % 2) ^ row / $(128 // row_bytes) % $(row_bytes // 16);
        const float *s = sum + i * (ROWS / 2);
        store_matrix_x4_turned(slab + row * $(row_bytes) + chunk * 16, pack(s[0], s[1]),
                               pack(s[2], s[3]), pack(s[4], s[5]), pack(s[6], s[7]));
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
FN unsigned int pack(float lo, float hi)
{
    unsigned int packed;
    asm("cvt.rn.$(d.type)x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}

//$ local columns = d_box[1]
//$ local turn = columns == 64 and "row % 8" or "row / 2 % 4" -- of a swizzle of as many bytes
//$ local to = "as " .. d.type .. " into a slab of 16 swizzled rows of " .. 2 * columns .. " bytes"
/* One warp's 16 rows x $(columns) columns $(to). */
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    const int row = lane % 16;

    for (int j = 0; j < $(columns // 16); j++) {
        const int chunk = 2 * j + lane / 16;
        const float *s = sum + 8 * j;
        store_matrix_x4(slab + row * $(2 * columns) + (chunk ^ $(turn)) * 16, pack(s[0], s[1]),
                        pack(s[2], s[3]), pack(s[4], s[5]), pack(s[6], s[7]));
    }
}

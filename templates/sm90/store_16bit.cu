//$ -- SPDX-License-Identifier: Apache-2.0
FN unsigned int pack(float lo, float hi)
{
    unsigned int packed;
    asm("cvt.rn.$(d.type)x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}

//$ if epilogue ~= "gradient" and epilogue ~= "gradient_copies" then
/* One warp's 16 rows x 64 columns as $(d.type) into a slab of 16 swizzled rows of 128 bytes. */
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    const int row = lane % 16;

    for (int j = 0; j < 4; j++) {
        const int chunk = 2 * j + lane / 16;
        const float *s = sum + 8 * j;
        store_matrix_x4(slab + row * 128 + (chunk ^ row % 8) * 16, pack(s[0], s[1]),
                        pack(s[2], s[3]), pack(s[4], s[5]), pack(s[6], s[7]));
    }
}
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
FN unsigned int pack(float lo, float hi)
{
    unsigned int packed;
    asm("cvt.rn.$(d.type)x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}

/*
** One warp's 16 rows x 16 columns as $(d.type) into a slab of 16 swizzled rows of 32 bytes. Its
** threads hold two columns of D side by side as rows of which one is 8 below the other.
*/
FN void fill_slab(unsigned int slab, const float *sum, int lane)
{
    for (int i = 0; i < 4; i++) {
        const int row = i / 2 * 8 + lane % 4 * 2 + i % 2;
        const float *s = sum + i / 2 * 4 + i % 2;

        store_shared_word(slab + row * 32 + (lane / 16 ^ row / 4 % 2) * 16 + lane / 4 % 4 * 4,
                          pack(s[0], s[2]));
    }
}

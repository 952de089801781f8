/* One warp's 16 rows x 32 columns as fp32 into a slab of 16 swizzled rows of 128 bytes. */
DEVICE void fill_slab(unsigned int slab, const float *sum, int lane)
{
    const int row = lane / 4;

    for (int j = 0; j < 4; j++) {
        const int chunk = 2 * j + lane % 4 / 2;
        const unsigned int to = slab + row * 128 + (chunk ^ row) * 16 + lane % 2 * 8;
        store_shared_x2(to, sum[4 * j], sum[4 * j + 1]);
        store_shared_x2(to + 8 * 128, sum[4 * j + 2], sum[4 * j + 3]);
    }
}

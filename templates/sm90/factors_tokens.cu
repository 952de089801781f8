//$ -- SPDX-License-Identifier: Apache-2.0
/* The scales of A's rows, the tokens: factors of the sums, which threads hold turned. */
struct factors {
    const float *a;
};

/* Prefetch the scales while the tile is multiplied. */
FN void factors_prefetch(const struct factors *f, const struct tile *t, int row, int rows,
                         int lane)
{
    row += lane * 32;
    if (lane * 32 < ROWS && row < rows)
        prefetch(f->a + t->start + row);
}

/* D's rows begin at `row` of the group's `rows`. */
FN void scale_sums(float sum[SUMS], const struct factors *f, const struct tile *t, int row,
                   int rows, int lane)
{
    const float *a = f->a + t->start;

    row += lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < ROWS / 8; j++) {
        const int y = row + 8 * j;
        const float left = y < rows ? a[y] : 0, right = y + 1 < rows ? a[y + 1] : 0;
#pragma unroll
        for (int i = 0; i < COLUMNS / 32; i++) {
            float *s = sum + i / 2 * (ROWS / 2) + 4 * j + i % 2 * 2;
            s[0] *= left;
            s[1] *= right;
        }
    }
}

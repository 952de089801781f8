//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A warp's operands in registers, 16 steps of k at a time. ldmatrix reads four 8x8 matrices; each
** lane says where one row of one of them is, so `mn` and `k` differ by lane: the first element of
** its matrix, counted from the stage's first.
*/
//$ if a.major == "k" or b.major == "k" then
FN void load_matrices_k(unsigned int *word, unsigned int tile, int mn, int k, int pitch)
{
    load_matrix_x4(word, tile + place(mn + threadIdx.x % 8, k / CHUNK, pitch));
}

//$ end
//$ if a.major == "mn" or b.major == "mn" then
FN void load_matrices_mn(unsigned int *word, unsigned int tile, int mn, int k, int pitch)
{
    load_matrix_x4_transposed(word, tile + place(k + threadIdx.x % 8, mn / CHUNK, pitch));
}

//$ end
/* 16 rows of A in each entry of a, 16 columns of D in each of b: words 0 and 1, then 2 and 3. */
struct fragments {
    unsigned int a[WARP_M / 16][4], b[WARP_N / 16][4];
};

/* Both operands for the sums from `row`, `column` on and the steps from `k` on. */
FN void load_fragments(struct fragments *f, unsigned int stage, int row, int column, int k)
{
    const int odd = threadIdx.x / 8 % 2 * 8, upper = threadIdx.x / 16 % 2 * 8;

#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
        load_matrices_$(a.major)(f->a[i], stage, row + 16 * i + odd, k + upper, A_PITCH);
#pragma unroll
    for (int i = 0; i < WARP_N / 16; i++)
        load_matrices_$(b.major)(f->b[i], stage + A_BYTES, column + 16 * i + upper, k + odd,
                         $(b.major == "mn" and " " or "")B_PITCH);
}

/* sum += a * b */
FN void multiply(float sum[WARP_M / 16][WARP_N / 8][4], const struct fragments *f)
{
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++)
            mma(sum[i][j], f->a[i], f->b[j / 2] + j % 2 * 2);
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ if b.major == "k" then
/* A thread's values of B, from swizzled rows of 128 bytes: row `row` is the first of the warp's. */
FN void load_values(struct fragment *f, unsigned int from, int row, int lane)
{
    row += lane / 4;
    from += row * TILE_K * 2 + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int y = 0; y < TILE_K / 8; y++)
            f->pair[i][y] = load_shared_word(from + i * 8 * TILE_K * 2 + (y ^ row % 8) * 16);
}
//$ else
//$ once "dequantize/permute.c"
/*
** A thread's values of B, from 64 rows of them: a swizzled row of 128 bytes for each step of k. Its
** two rows are neighbours, as those of codes; `row` is the first of the warp's.
*/
FN void load_values(struct fragment *f, unsigned int from, int row, int lane)
{
    const int k = lane % 4 * 2; /* of 8 steps */

    from += row / 64 * 64 * TILE_K * 2 + k * 128 + lane / 4 % 4 * 4;
    row = row % 64 / 8 + lane / 16;
#pragma unroll
    for (int y = 0; y < TILE_K / 8; y++, from += 8 * 128) {
        const unsigned int one = load_shared_word(from + (row ^ k) * 16);
        const unsigned int two = load_shared_word(from + 128 + (row ^ (k + 1)) * 16);

        f->pair[0][y] = permute(one, two, 0x5410);
        f->pair[1][y] = permute(one, two, 0x7632);
    }
}
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The products of codes and their scales as the tensor cores take both. A product takes 32 bytes of
** each row, and a word of scales. It selects lanes with scales among four of them; lane i has
** those of
**   A   rows i / 4 of each 8, 8 (i % 4) below    16 rows of lanes 0 and 1, then of 2 and 3
**   B   columns i / 4 of each 8, 8 (i % 4) on    8 columns of each lane
** so that one word in each lane serves 32 rows or columns.
*/
//$ local forms = {
//$   mxf8f6f4 = { "1X.m16n8k32", "ue8m0", 1 },
//$   mxf4     = { "2X.m16n8k64", "ue8m0", 2 },
//$   mxf4nvf4 = { "4X.m16n8k64", "ue4m3", 4 },
//$ }
//$ local form = forms[kind]
enum {
    BLOCK = $(a.scale.k),     /* codes with one scale */
    STEP_BYTES = 32,    /* of a row, in one product */
    STEP_SCALES = $(form[3]),    /* of a row, there */
    WORDS = $(tile.k // (4 * a.scale.k)),          /* of four scales, that a row of a stage has */
    LINES = TILE_M + TILE_N       /* at most THREADS */
};

//$ include "sm80/shared.cu"

FN void store_shared_word(unsigned int to, unsigned int word)
{
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(word) : "memory");
}

/*
** sum += (a * its scales) * (b * its scales) for 16 rows and 8 columns. Lane i holds
**   sum[0, 1]  row i / 4, columns 2 (i % 4) + 0, 1      sum[2, 3]  8 rows below
**   a[0]       row i / 4, word i % 4 of its codes       a[1]       8 rows below
**   a[2, 3]    the same, 4 words on
**   b[0]       column i / 4, word i % 4                 b[1]       4 words on
** The scales are the lowest bytes of words: A's of lanes 2 `rows` and 2 `rows` + 1 of four, B's of
** lane `columns`. Words are shifted, since no kernel of others is known to select byte 2 of one for
** mxf4 (bench/notes: foreign-kernels-sm120).
*/
FN void mma_scaled(float *sum, const unsigned int *a, const unsigned int *b, unsigned int a_scales,
                   unsigned int b_scales, int rows, int columns)
{
    asm volatile("mma.sync.aligned.kind::$(kind).block_scale.scale_vec::$(form[1]).row.col.f32"
                 ".$(a.type).$(b.type).f32.$(form[2])"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3},"
                 " %10, {0, %12}, %11, {0, %13};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "r"(a_scales), "r"(b_scales), "h"((short)rows), "h"((short)columns));
}

//$ include "common/four_scales.cu"

/* The scales of this thread's row of a stage, of A or of B, on their way; `blocks` have scales. */
FN void fetch_scales(unsigned int words[WORDS], const struct source *a, const struct source *b,
                     int stage, int blocks)
{
    const int line = threadIdx.x, first = stage * (4 * WORDS);

#pragma unroll
    for (int i = 0; i < WORDS; i++)
        if (line < TILE_M)
            words[i] = four_scales_a(a->sf, &a->scales, a->row + line, first + 4 * i,
                                     line < a->rows ? blocks : 0);
        else if (line < LINES)
            words[i] = four_scales_b(b->sf, &b->scales, b->row + line - TILE_M, first + 4 * i,
                                     line - TILE_M < b->rows ? blocks : 0);
}

/* Store them into the stage, after its codes. */
FN void put_scales(unsigned int stage, const unsigned int words[WORDS])
{
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        if (threadIdx.x < LINES)
            store_shared_word(stage + CODE_BYTES + 4 * (i * LINES + threadIdx.x), words[i]);
}

/* 16 rows of A in each entry of a, 8 columns of D in each of b; their scales. */
struct fragments {
    unsigned int a[WARP_M / 16][4], b[WARP_N / 8][2];
    unsigned int a_scales[WARP_M / 32], b_scales[WARP_N / 32];
};

/* For the sums from `row`, `column` on; ldmatrix takes an address from each lane. */
FN void load_fragments(struct fragments *f, unsigned int stage, int step, int row, int column)
{
    const int lane = threadIdx.x % 32;
    const unsigned int from = stage + step * STEP_BYTES;

#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
        load_matrix_x4(f->a[i], from + (row + 16 * i + lane % 16) * A_PITCH + lane / 16 * 16);
#pragma unroll
    for (int j = 0; j < WARP_N / 16; j++) {
        const int at = column + 16 * j + lane % 8 + lane / 16 * 8;
        load_matrix_x4(f->b[2 * j], from + A_BYTES + at * B_PITCH + lane / 8 % 2 * 16);
    }
}

/* The words of scales that the products of a step select from. */
FN void load_scales(struct fragments *f, unsigned int stage, int word, int row, int column)
{
    const int lane = threadIdx.x % 32, line = lane / 4 + lane % 4 * 8;
    const unsigned int from = stage + CODE_BYTES + 4 * (word * LINES + line);

#pragma unroll
    for (int i = 0; i < WARP_M / 32; i++)
        f->a_scales[i] = load_shared_word(from + 4 * (row + 32 * i));
#pragma unroll
    for (int j = 0; j < WARP_N / 32; j++)
        f->b_scales[j] = load_shared_word(from + 4 * (TILE_M + column + 32 * j));
}

FN void multiply_stage(float sum[WARP_M / 16][WARP_N / 8][4], unsigned int stage, int row,
                       int column)
{
    struct fragments f;

#pragma unroll 1
    for (int word = 0; word < WORDS; word++) {
        load_scales(&f, stage, word, row, column);
#pragma unroll
        for (int byte = 0; byte < 4; byte += STEP_SCALES) {
            load_fragments(&f, stage, (4 * word + byte) / STEP_SCALES, row, column);
#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; j++)
                    mma_scaled(sum[i][j], f.a[i], f.b[j], f.a_scales[i / 2] >> 8 * byte,
                               f.b_scales[j / 4] >> 8 * byte, i % 2, j % 4);
        }
    }
}

/*
** sum += a * b over `length` values of k, at least one, of which the first `values` have scales;
** `row`, `column`: the warp's first sums.
*/
FN void multiply_tile(float sum[WARP_M / 16][WARP_N / 8][4], const struct source *a,
                      const struct source *b, int length, int values, int row, int column)
{
    const unsigned int ring = shared_address(shared_memory());
    const int stages = length / TILE_K + (length % TILE_K > 0);
    const int blocks = values / BLOCK + (values % BLOCK > 0);
    unsigned int words[WORDS];

#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < stages) {
            copy_both(a, b, ring + i * STAGE_BYTES, i);
            fetch_scales(words, a, b, i, blocks);
            put_scales(ring + i * STAGE_BYTES, words);
        }
        copy_commit();
    }
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        const unsigned int ahead = ring + (i + STAGES - 1) % STAGES * STAGE_BYTES;
        const int more = i + STAGES - 1 < stages;

        copy_wait(STAGES - 2);
        __syncthreads(); /* all have it, and nothing reads the one before any more */
        if (more) {
            copy_both(a, b, ahead, i + STAGES - 1);
            fetch_scales(words, a, b, i + STAGES - 1, blocks);
        }
        copy_commit();
        multiply_stage(sum, ring + i % STAGES * STAGE_BYTES, row, column);
        if (more)
            put_scales(ahead, words);
    }
}

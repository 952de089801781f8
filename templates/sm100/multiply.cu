//$ -- SPDX-License-Identifier: Apache-2.0
//$ local types = { f16 = 0, bf16 = 1, e4m3 = 0, e5m2 = 1 }
//$ local kind = bytes == 2 and "f16" or "f8f6f4"
//$ local mn = { k = 0, mn = 1 }
//$ local lines, spots = a, b
//$ if turned then
//$   lines, spots = b, a
//$ end
//$ local shape = 1 << 4 | types[lines.type] << 7 | types[spots.type] << 10
//$ shape = shape | mn[lines.major] << 15 | mn[spots.major] << 16
//$ local at = { lines = turned and "A_BYTES" or "0", spots = turned and "0" or "A_BYTES" }
//$ local step = { lines = "A_STEP", spots = "B_STEP" }
//$ if turned then
//$   step = { lines = "B_STEP", spots = "A_STEP" }
//$ end
//$ local high = pair and "CTAS * LINES" or "LINES"
/*
** Operands in shared memory, in swizzled rows of 128 bytes. k-major: a row for each row of the
** tile. mn-major: chunks of 64 rows of the tile, each with a row for each step of k.
*/
enum {
    ROWS_OF_8 = 1024 >> 4,       /* high word of an operand: bytes from 8 rows to the next */
    VERSION = 1 << 14,           /* always */
    SWIZZLE_128 = 1 << 30,
    CHUNK_BYTES = TILE_K * 128,
    SHAPE = $(string.format("0x%x", shape)) | ($(high)) >> 4 << 24 /* types, majors, lines */
};

/* The low word of an operand. Addresses count 16 bytes, in 14 bits. */
FN unsigned int mma_operand(unsigned int address)
{
    return (address >> 4 & 0x3fff) | CHUNK_BYTES >> 4 << 16;
}

/* sums += lines * spots, for MMA_K steps of k. With `accumulate` 0 the old sums are not read. */
FN void mma(unsigned int sums, unsigned int lines, unsigned int spots, unsigned int shape,
            int accumulate)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 ".reg .b64 a, b;\n"
                 "mov.b64 a, {%1, %5};\n"
                 "mov.b64 b, {%2, %5};\n"
                 "setp.ne.b32 p, %4, 0;\n"
                 "tcgen05.mma.cta_group::$(pair and 2 or 1).kind::$(kind) [%0], a, b, %3, p;\n"
                 "}"
                 : : "r"(sums), "r"(lines), "r"(spots), "r"(shape), "r"(accumulate),
                     "n"(SWIZZLE_128 | VERSION | ROWS_OF_8)
                 : "memory");
}

/* The shape of a tile's products. */
FN unsigned int shape_of(const struct tile *t)
{
    return SHAPE | (unsigned int)spots_of(t) >> 3 << 17;
}

/*
** sums = a * b over all of k, at least one step; stages are free again when their products are
** done. By one thread.
*/
FN void multiply_tile(unsigned int sums, const struct memory *s, struct pipeline *p,
                      const struct tile *t, int k)
{
    const unsigned int shape = shape_of(t);

#pragma unroll 1
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int stage = s->ring + p->stage * STAGE_BYTES;
        const unsigned int lines = mma_operand(stage + $(at.lines));
        const unsigned int spots = mma_operand(stage + $(at.spots));

        barrier_wait(s->full + p->stage * 8, p->parity);
//$ if gather ~= "none" then
        copy_engine_fence(); /* threads wrote A */
//$ end
        tensor_after_barrier();
#pragma unroll
        for (int step = 0; step < TILE_K / MMA_K; step++)
            mma(sums, lines + step * $(step.lines) / 16, spots + step * $(step.spots) / 16, shape,
                x > 0 || step > 0);
        tensor_commit(s->empty + p->stage * 8);
        pipeline_next(p, STAGES);
    }
}
//$ if gather ~= "none" and pair then

//$ include "sm100/forward.cu"
//$ end

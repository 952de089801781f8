//$ -- SPDX-License-Identifier: Apache-2.0
//$ local forms = {
//$   mxf8f6f4 = { "block32", 1, 1, { e4m3 = 0, e5m2 = 1 } },
//$   mxf4     = { "block32", 2, 1, { e2m1 = 1 } },
//$   mxf4nvf4 = { "block16", 4, 0, { e2m1 = 1 } },
//$ }
//$ local block, step_scales, power, types = table.unpack(forms[kind])
//$ local lines, spots = a, b
//$ if turned then
//$   lines, spots = b, a
//$ end
//$ local shape = types[lines.type] << 7 | types[spots.type] << 10 | power << 23
//$ local high = pair and "CTAS * LINES" or "LINES"
//$ local group = pair and 2 or 1
//$ local at = { lines = turned and "A_BYTES" or "0", spots = turned and "0" or "A_BYTES" }
/*
** Operands in shared memory, in swizzled rows of 128 bytes, one for each row of the tile; scales in
** tiles of 128 rows x 4, which the tensor cores' memory has in 4 words of each of 32 lines, four
** times over. A product takes 32 bytes of each row, and its scales from one word of each.
*/
enum {
    ROWS_OF_8 = 1024 >> 4,        /* high word of an operand: bytes from 8 rows to the next */
    SCALES_OF_8 = 128 >> 4,       /* the same of scales, without a swizzle */
    VERSION = 1 << 14,            /* always */
    SWIZZLE_128 = 1 << 30,
    SHAPE = $(string.format("0x%x", shape)) | ($(high)) >> 4 << 24, /* types, scales', too; lines */
    STEPS = 4,                    /* products in a stage */
    STEP_SCALES = $(step_scales), /* of a row, in one */
    LINE_BYTE = 1 << 29,          /* the first of them in its word, in a shape */
    SPOT_BYTE = 1 << 4
};

/* The low word of an operand. Addresses count 16 bytes, in 14 bits. */
FN unsigned int mma_operand(unsigned int address)
{
    return address >> 4 & 0x3fff;
}

/* sums += (lines * their scales) * (spots * theirs), for 32 bytes of k. With `accumulate` 0 the old
   sums are not read. */
FN void mma(unsigned int sums, unsigned int lines, unsigned int spots, unsigned int shape,
            unsigned int line_scales, unsigned int spot_scales, int accumulate)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 ".reg .b64 a, b;\n"
                 "mov.b64 a, {%1, %7};\n"
                 "mov.b64 b, {%2, %7};\n"
                 "setp.ne.b32 p, %6, 0;\n"
                 "tcgen05.mma.cta_group::$(group).kind::$(kind).block_scale.$(block)"
                 " [%0], a, b, %3, [%4], [%5], p;\n"
                 "}"
                 : : "r"(sums), "r"(lines), "r"(spots), "r"(shape), "r"(line_scales),
                     "r"(spot_scales), "r"(accumulate), "n"(SWIZZLE_128 | VERSION | ROWS_OF_8)
                 : "memory");
}

/* A tile of scales from shared memory to 4 words of all lines, from `to` on. */
FN void copy_scales(unsigned int to, unsigned int from)
{
    asm volatile("{\n"
                 ".reg .b64 a;\n"
                 "mov.b64 a, {%1, %2};\n"
                 "tcgen05.cp.cta_group::$(group).32x128b.warpx4 [%0], a;\n"
                 "}"
                 : : "r"(to), "r"(mma_operand(from)), "n"(VERSION | SCALES_OF_8) : "memory");
}

/* The shape of a tile's products. */
FN unsigned int shape_of(const struct tile *t)
{
    return SHAPE | (unsigned int)spots_of(t) >> 3 << 17;
}

/*
** to = a * b over all of k, at least one step; stages are free again when their products are done.
** Copies of scales and products follow each other in the order in which they are issued here: those
** of the next stage come when the last product has read its own. By one thread.
*/
FN void multiply_tile(unsigned int to, unsigned int sums, const struct memory *s,
                      struct pipeline *p, const struct tile *t, int k)
{
    const unsigned int shape = shape_of(t);

#pragma unroll 1
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int stage = s->ring + p->stage * STAGE_BYTES;
        const unsigned int sf = s->sf + p->stage * SF_BYTES;
        const unsigned int lines = mma_operand(stage + $(at.lines));
        const unsigned int spots = mma_operand(stage + $(at.spots));

        barrier_wait(s->full + p->stage * 8, p->parity);
//$ if gather ~= "none" then
        copy_engine_fence(); /* threads wrote A */
//$ end
        barrier_wait(s->sf_full + p->stage * 8, p->parity);
        tensor_after_barrier();
#pragma unroll
        for (int word = 0; word < WORDS; word++) {
            copy_scales(sums + LINE_SCALES + 4 * word, sf + 512 * word);
#pragma unroll
            for (int tile = 0; tile < SPOT_TILES; tile++)
                copy_scales(sums + SPOT_SCALES + SPOT_WORD * word + 4 * tile,
                            sf + 512 * (WORDS + WORDS * tile + word));
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const int word = step * STEP_SCALES / 4, byte = step * STEP_SCALES % 4;

            mma(to, lines + step * 2, spots + step * 2, shape | byte * (LINE_BYTE | SPOT_BYTE),
                sums + LINE_SCALES + 4 * word, sums + SPOT_SCALES + SPOT_WORD * word,
                x > 0 || step > 0);
        }
        tensor_commit(s->empty + p->stage * 8);
        pipeline_next(p, STAGES);
    }
}
//$ if gather ~= "none" and pair then

//$ include "sm100/forward.cu"
//$ end

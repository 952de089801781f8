//$ -- SPDX-License-Identifier: Apache-2.0
/*
** More steps of k, of operands of their own: [rows, extra_k], whose rows are those of A, and a
** matrix of B's form for each group, both in 16 bits. They follow the steps of A and B in the ring
** of packed stages, each in two of these: A, and after it the values of B of one warpgroup. Both
** are in order, so A is multiplied as it was copied, and the sums go on.
*/
enum { EXTRA_BYTES = A_PACKED + COLUMNS * TILE_K * 2 };

/* Fill stages with those of one tile of D. By one thread. */
FN void load_extra(const struct memory *s, struct pipeline *p, const struct tile *t,
                   const struct maps *maps, int extra_k)
{
#pragma unroll 1
    for (int x = 0; x < extra_k; x += TILE_K)
#pragma unroll 1
        for (int part = 0; part < TILE_N; part += COLUMNS) {
            const unsigned int full = s->packed_full + p->stage * 8;
            const unsigned int stage = s->packed + p->stage * SPAN * PACKED_BYTES;

            barrier_wait(s->packed_empty + p->stage * 8, p->parity ^ 1);
            barrier_expect(full, EXTRA_BYTES);
            load_box_2d(stage, maps->extra_a, full, x, (int)t->start + t->row);
#pragma unroll
            for (int i = 0; i < COLUMNS; i += 64)
                load_box_3d(stage + A_PACKED + i * TILE_K * 2, maps->extra_b, full, x,
                            t->column + part + i, t->group);
            pipeline_next(p, PACKED_STAGES);
        }
}

/* Who reads no value of a stage gives it back as well, but not before it is there. */
FN void pass_extra(const struct memory *s, struct pipeline *p, int lane)
{
    barrier_wait(s->packed_full + p->stage * 8, p->parity);
    __syncwarp(); /* a lane that has not seen it be there by then would wait for ever */
    release_packed(s, p->stage, lane);
    pipeline_next(p, PACKED_STAGES);
}

//$ include "sm90/extra_values.cu"

/* sum += a * b turned over all of these steps, at least one. */
FN void multiply_extra(float sum[SUMS], const struct memory *s, struct pipeline *p,
                       int first_row, int extra_k, int lane)
{
    const int row = threadIdx.x / 32 % 4 * LINES;

#pragma unroll 1
    for (int x = 0; x < extra_k; x += TILE_K) {
        struct fragment f;
        unsigned int stage;

        if (first_row > 0)
            pass_extra(s, p, lane);
        stage = s->packed + p->stage * SPAN * PACKED_BYTES;
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        load_values(&f, stage + A_PACKED, row, lane);
        multiply(sum, &f, mma_operand(stage), 1);
        mma_wait(0);
        packed_done(s, p, lane);
        if (first_row == 0)
            pass_extra(s, p, lane);
    }
    mma_finish(sum, SUMS);
}

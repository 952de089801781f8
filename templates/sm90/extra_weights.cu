//$ -- SPDX-License-Identifier: Apache-2.0
/*
** More steps of k, of operands of their own: [rows, extra_k], whose rows are those of A, and a
** matrix of B's form for each group, both in 16 bits. They follow the steps of A and B in the ring,
** each in two stages, since B's values take more room than its codes: first one of B, then one of
** A. The sums go on.
*/
enum { EXTRA_B_BYTES = TILE_N * TILE_K * 2 };

/* The next stage, for so many bytes. By one thread. */
FN unsigned int extra_stage(const struct memory *s, struct pipeline *p, int bytes,
                            unsigned int *full)
{
    const unsigned int stage = s->ring + p->stage * STAGE_BYTES;

    *full = s->full + p->stage * 8;
    barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
    barrier_expect(*full, bytes);
    pipeline_next(p, STAGES);
    return stage;
}

/* Fill stages with those of one tile of D. By one thread. */
FN void load_extra(const struct memory *s, struct pipeline *p, const struct tile *t,
                   const struct maps *maps, int extra_k)
{
    const int rows = copied_rows(t);

#pragma unroll 1
    for (int x = 0; x < extra_k; x += TILE_K) {
        unsigned int full, stage = extra_stage(s, p, EXTRA_B_BYTES, &full);

//$ local at = b.major == "k" and "x, t->column + i" or "t->column + i, x"
#pragma unroll
        for (int i = 0; i < TILE_N; i += 64)
            load_box_3d(stage + i * TILE_K * 2, maps->extra_b, full, $(at), t->group);
        stage = extra_stage(s, p, rows * TILE_K * 2, &full);
#pragma unroll 1
        for (int i = 0; i < rows; i += $(a_box[2]))
            load_box_2d(stage + i * TILE_K * 2, maps->extra_a, full, x,
                        (int)t->start + t->row + i);
    }
}

//$ include "sm90/extra_values.cu"

/* sum += a * b turned over all of these steps, at least one. */
FN void multiply_extra(float sum[SUMS], const struct memory *s, struct pipeline *p,
                       int first_row, int extra_k, int lane)
{
    const int row = first_row + threadIdx.x / 32 % 4 * (COLUMNS / 4);

#pragma unroll 1
    for (int x = 0; x < extra_k; x += TILE_K) {
        struct fragment f;

        barrier_wait(s->full + p->stage * 8, p->parity);
        load_values(&f, s->ring + p->stage * STAGE_BYTES, row, lane);
        copy_engine_fence(); /* the stage may be overwritten */
        __syncwarp();
        release(s, p->stage, lane);
        pipeline_next(p, STAGES);
        barrier_wait(s->full + p->stage * 8, p->parity);
        multiply(sum, &f, mma_operand(s->ring + p->stage * STAGE_BYTES), 1);
        mma_wait(0);
        release(s, p->stage, lane);
        pipeline_next(p, STAGES);
    }
    mma_finish(sum, SUMS);
}

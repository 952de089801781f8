//$ -- SPDX-License-Identifier: Apache-2.0
//$ local either = wide == "either"
//$ local more = tile.m > 64 -- rows than two lanes for each have at a time
/*
//$ local types = either and "f16 or bf16" or "bf16"
** The warps between the copies and the products: each two threads take a row of A of a packed
** stage, half of TILE_K codes each, and write them as $(types) into a stage of the ring, where
** the tensor cores expect them.
//$ if more then
** From row EIGHTHS on a warp has 8 rows, and its lanes half of one of the stage's two steps.
//$ end
*/
//$ if more then
enum { EIGHTHS = 64 };

//$ end
//$ include "sm90/dequantize_half.cu"

/* Half of a row of one step of the stage that begins at `x`; `bits` as word_a has them. */
FN void dequantize_step(const struct memory *s, unsigned int packed, unsigned int stage,
                        unsigned int bits, int x, int step, int row, int half)
{
    dequantize_half_a(packed + step * PACKED_BYTES, stage + step * STAGE_BYTES, row, half,
                      scales_a(s, bits, x + step * TILE_K, row));
}

//$ include "sm90/dequantize_half_f16.cu"

/* A row as f16: its scales for a stage become factors. */
struct narrow_row {
    int row, needed; /* the group has it */
    unsigned int scales;
};

/* Both are a warp's, and its lanes' results hold for all. Returns whether a scale is not near. */
FN int narrow_rows(const struct memory *s, struct narrow_row *rows, int count,
                   unsigned int near, unsigned int sequence)
{
    unsigned int beyond = 0, over = 0;

#pragma unroll
    for (int i = 0; i < count; i++)
        beyond |= rows[i].needed ? beyond_f16(rows[i].scales - near) : 0;
    if (__any_sync(~0u, beyond)) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            unsigned int large = 0;

            rows[i].scales = far_f16(rows[i].scales, low_of_near(near), &large);
            over |= rows[i].needed ? large : 0;
        }
        if (over)
            mark_tile(s, sequence, 1);
        return 1;
    }
#pragma unroll
    for (int i = 0; i < count; i++)
        rows[i].scales = four_f16(rows[i].scales - near);
    return 0;
}

FN void narrow_step(const struct memory *s, unsigned int packed, unsigned int stage, int step,
                    const struct narrow_row *r, int half, int far, unsigned int sequence)
{
    dequantize_half_f16(s, packed + step * PACKED_BYTES, stage + step * STAGE_BYTES, r->row, half,
                        r->scales, step, far && r->needed, sequence);
}

/* Dequantize all steps of one tile: `p` is the place of the packed stages, `q` of those of the
   ring. */
FN void dequantize_tile(const struct memory *s, struct pipeline *p, struct pipeline *q,
                        const struct tile *t, const struct scales *scales, int rows, int k,
                        int lane)
{
    const int row = threadIdx.x % 128 / 2, half = threadIdx.x % 2;
//$ if more then
    const int eighth = EIGHTHS + row / 16 * 8; /* the first of the warp's 8 rows */
    const int beyond = eighth + lane % 16 / 2;
    const int both = uniformly(rows - t->row > EIGHTHS); /* else nothing needs them */
//$ end
//$ if a.scale then
//$ if more then
    /* A lane for each line. */
    const int own = half == 0 ? row : eighth + lane / 2;
    const int fetches = half == 0 || lane < 16 && both;
//$ else
    const int own = row, fetches = half == 0 && row < TILE_M;
//$ end
    const struct line line = line_a(scales, t, t->row + own, rows);
    const int skip = __shfl_sync(~0u, line.skip, lane & ~1);
//$ if more then
    const unsigned int bits = 8 * (skip | __shfl_sync(~0u, line.skip, lane % 16 | 1) << 8);
//$ else
    const unsigned int bits = 8 * skip;
//$ end
//$ if either then
    unsigned int near = 0;
//$ end

    copy_wait(0); /* unneeded copies of the tile before may still land */
    if (fetches)
        fetch_a(s, &line, 0, own);
//$ end
#pragma unroll 1
    for (int x = -SF_AHEAD * SPAN * TILE_K; x < k; x += SPAN * TILE_K) {
        const unsigned int packed = s->packed + p->stage * SPAN * PACKED_BYTES;
        const unsigned int stage = s->ring + q->stage * SPAN * STAGE_BYTES;

//$ if a.scale then
        if (fetches)
            fetch_next_a(s, &line, x + SF_AHEAD * SPAN * TILE_K, own);
        copy_commit();
        if (x < 0)
            continue;
        copy_wait(SF_AHEAD);
        __syncwarp(); /* the scales of all lanes are there */
//$ else
        if (x < 0)
            continue;
//$ end
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        barrier_wait(s->empty + q->stage * 8, q->parity ^ 1);
//$ local pad, inside = either and "    " or "", tile.m < 64 and " && row < TILE_M" or ""
//$ if either then
        if (t->as == AS_F16) {
            struct narrow_row of[$(more and 2 or 1)];
            int far;

            of[0].row = row;
            of[0].needed = row < TILE_M && rows - t->row > row;
            of[0].scales = row < TILE_M ? word_a(s, bits, x, row) : 0;
//$ if more then
            of[1].row = beyond;
            of[1].needed = rows - t->row > beyond;
            of[1].scales = both ? word_a(s, bits >> 8, x, beyond) : 0;
//$ end
            if (x == 0) {
//$ local before = more and "largest_of(0, of[1].scales)" or "0"
                const unsigned int most = largest_of($(before), of[0].scales);

                const unsigned int low = sampled_f16(__reduce_max_sync(~0u, most));

                store_shared_byte(lows_of(s, t->sequence) + threadIdx.x % 128 / 32, low, lane == 0);
                near = near_f16(low);
            }
            far = narrow_rows(s, of, $(more and 2 or 1), near, t->sequence);
#pragma unroll
            for (int i = 0; i < SPAN$(inside); i++)
                narrow_step(s, packed, stage, i, &of[0], half, far, t->sequence);
//$ if more then
            if (both)
                narrow_step(s, packed, stage, lane / 16, &of[1], half, far, t->sequence);
//$ end
        } else {
//$ end
#pragma unroll
        $(pad)for (int i = 0; i < SPAN$(inside); i++)
//$ if a.scale then
            $(pad)dequantize_step(s, packed, stage, bits, x, i, row, half);
//$ if more then
        $(pad)if (both)
            $(pad)dequantize_step(s, packed, stage, bits >> 8, x, lane / 16, beyond, half);
//$ end
//$ else
            dequantize_half_a(packed + i * PACKED_BYTES, stage + i * STAGE_BYTES, row, half);
//$ if more then
        if (both)
            dequantize_half_a(packed + lane / 16 * PACKED_BYTES, stage + lane / 16 * STAGE_BYTES,
                              beyond, half);
//$ end
//$ end
//$ if either then
        }
//$ end
        copy_engine_fence(); /* the tensor cores read as the copy engine does */
        __syncwarp();
        release_packed(s, p->stage, lane);
        if (lane == 0)
            barrier_arrive(s->full + q->stage * 8);
        pipeline_next(p, PACKED_STAGES);
        pipeline_next(q, STAGES);
    }
}

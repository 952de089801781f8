//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The warps between the copies and the products: from the values of a stage, and nothing else,
** they make A's codes and scales, where the tensor cores and the warps that multiply expect
** them.
//$ if cluster.n > 1 then
** CTAs side by side multiply the same rows: each makes a part of them, which the copy engine sends
** to the others.
//$ end
*/
enum {
    WARPS = 3, /* that quantize */
    UNIT = 16, /* rows that one of them takes at a time */
    UNITS = VALUE_ROWS / UNIT,
    MOST = (UNITS + WARPS - 1) / WARPS /* that a warp has in a step */
};

//$ include "sm90/quantize_rows.cu"

/* A warp's codes of one stage, to the same address in the other CTAs. By one thread. */
FN void units_give(unsigned int stage, unsigned int sf, unsigned int full, int unit)
{
    for (; unit < UNITS; unit += WARPS)
        for (unsigned int i = 1; i < CTAS; i++) {
            const unsigned int rank = (cluster_rank() + i) % CTAS;
            const unsigned int codes = stage + unit * UNIT * TILE_K, scales = sf + unit * UNIT * 4;

            copy_box_to(codes, UNIT * TILE_K, full, rank);
            copy_box_to(scales, UNIT * 4, full, rank);
        }
}

/*
** Quantize all steps of one tile, of which `rows` are the group's; others are not multiplied for
** anybody. `p` is the position of the values, `q` that of the codes. The warps take the tile's
** UNITS of UNIT rows in turn, and go on where they stopped in the step before: `unit` is the next
** one of this warp.
*/
FN void quantize_tile(const struct memory *s, struct pipeline *p, struct pipeline *q, int *unit,
                      int rows, int k, int lane)
{
//$ local of_codes = cluster.n > 1 and " + first * TILE_K" or ""
//$ local of_scales = cluster.n > 1 and " + first * 4" or ""
//$ local left = cluster.n > 1 and "rows - first" or "rows"
//$ if cluster.n > 1 then
    const int first = (int)cluster_rank() * VALUE_ROWS; /* of the rows that this CTA makes */

//$ end
#pragma unroll 1
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int values = s->values + p->stage * VALUE_BYTES;
        const unsigned int stage = s->ring + q->stage * STAGE_BYTES$(of_codes);
        const unsigned int sf = s->sf + q->stage * SF_BYTES$(of_scales);
//$ if cluster.n > 1 then
        const int made = *unit;
//$ end
        unsigned int most[MOST];

        barrier_wait(s->values_full + p->stage * 8, p->parity);
        units_most(most, values, *unit, lane);
        barrier_wait(s->empty + q->stage * 8, q->parity ^ 1);
        units_make(values, stage, sf, *unit, most, $(left), lane);
        *unit = (*unit + WARPS - UNITS % WARPS) % WARPS;
        copy_engine_fence(); /* the values may be overwritten, and the codes multiplied */
        __syncwarp();
        if (lane == 0) {
            barrier_arrive(s->values_empty + p->stage * 8);
            barrier_arrive(s->full + q->stage * 8);
//$ if cluster.n > 1 then
            units_give(stage, sf, s->full + q->stage * 8, made);
//$ end
        }
        pipeline_next(p, VALUE_STAGES);
        pipeline_next(q, STAGES);
    }
}

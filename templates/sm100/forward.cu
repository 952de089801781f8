//$ -- SPDX-License-Identifier: Apache-2.0
/* By a thread of the second CTA: tell the first one of each stage whose rows of A have arrived. */
FN void forward_tile(const struct memory *s, struct pipeline *p, int k)
{
#pragma unroll 1
    for (int x = 0; x < k; x += TILE_K) {
        barrier_wait(s->full + p->stage * 8, p->parity);
        copy_engine_fence(); /* threads wrote A */
        barrier_arrive_at(s->full + p->stage * 8, 0);
        pipeline_next(p, STAGES);
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
/* A position in a ring; `parity` flips with every round. */
struct pipeline {
    int stage;
    unsigned int parity;
};

FN void pipeline_next(struct pipeline *p, int stages)
{
    if (++p->stage == stages) {
        p->stage = 0;
        p->parity ^= 1;
    }
}

//$ include "sm90/tile_queue.cu"

//$ if dequantize ~= "none" and wide == "either" then
//$ include "sm90/narrow_tiles.cu"

//$ end
/* A math warp is done with a stage: tell every CTA that writes into it. */
FN void release(const struct memory *s, int stage, int lane)
{
//$ if cluster.m * cluster.n > 1 then
    if (lane < CTAS)
        barrier_arrive_at(s->empty + stage * 8, lane);
//$ else
    if (lane == 0)
        barrier_arrive(s->empty + stage * 8);
//$ end
}

/* An empty group is one step of zeros, from past its end. */
FN int k_length(const struct tile *t)
{
    return t->length > 0 ? (int)t->length : 1;
}

/* For one microbatch's share in a tile; that step is the first one's. */
FN int share_length(const struct tile *t, const struct tile *share, int part)
{
    return part == 0 && t->length == 0 ? 1 : (int)share->length;
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The tile queue: the warp with the scheduler posts each tile into one of QUEUE slots, ahead of the
** copies, and the warps that multiply find the next tile with one read. A slot is free again once
** every warp that its tile is for has read it. `sequence` is the sequence number of a tile.
*/
/* Post a tile whose copies begin at position `p` of the ring, or that there is none. By one
   thread. */
FN void queue_post(const struct memory *s, unsigned int *sequence, const struct tile *t,
                   const struct pipeline *p, int is_tile)
{
    const unsigned int at = *sequence % QUEUE, parity = *sequence / QUEUE % 2;
    const unsigned int slot = s->queue + at * SLOT_BYTES;

    barrier_wait(s->read + at * 8, parity ^ 1);
    store_shared_x4(slot, t->group, t->start, t->length, t->row);
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local runs = epilogue == "copies" or back or a_runs
//$ local beside = cluster.m > 1 and not pair and "t->beside" or runs and "t->runs" or "0"
    store_shared_x4(slot + 16, t->column, p->stage << 1 | p->parity, is_tile, $(beside));
//$ if ragged == "k" then
    store_shared_x4(slot + 32, (unsigned int)(u64)t->matrix, (unsigned int)((u64)t->matrix >> 32),
                    0, 0);
//$ end
    barrier_arrive(s->posted + at * 8);
    ++*sequence;
}

/* Wait until all have read the last tile that this lane has posted. */
FN void queue_wait(const struct memory *s, unsigned int sequence)
{
    barrier_wait(s->read + (sequence - 1) % QUEUE * 8, (sequence - 1) / QUEUE % 2);
}

/* The next tile of this warp, and where its copies begin; 0 if there is none. By all lanes. */
FN int queue_read(const struct memory *s, unsigned int *sequence, struct tile *t,
                  struct pipeline *p, int lane)
{
    const unsigned int at = *sequence % QUEUE, parity = *sequence / QUEUE % 2;
    const unsigned int slot = s->queue + at * SLOT_BYTES;
    unsigned int word[SLOT_BYTES / 4] = { 0 };

    barrier_wait(s->posted + at * 8, parity);
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < SLOT_BYTES / 4; i += 4)
            load_shared_x4(slot + i * 4, word + i);
    }
    /* After the arrival the slot may be posted again, and its data be overwritten: a lane that has
       not seen this phase end by then would miss it, and wait for ever. */
    __syncwarp();
    if (lane == 0)
        barrier_arrive(s->read + at * 8);
#pragma unroll
    for (int i = 0; i < SLOT_BYTES / 4; i++)
        word[i] = __shfl_sync(~0u, word[i], 0);
    *sequence += TURNS;
    t->group = (int)word[0];
    t->start = word[1];
    t->length = word[2];
    t->row = (int)word[3];
    t->column = (int)word[4];
//$ if epilogue == "copies" or back or a_runs then
    t->runs = word[7];
//$ end
    p->stage = uniform((int)(word[5] >> 1));
    p->parity = (unsigned int)uniform((int)(word[5] & 1));
//$ if ragged == "k" then
    t->matrix = (const void *)((u64)word[9] << 32 | word[8]);
//$ end
    return (int)word[6];
}

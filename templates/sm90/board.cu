//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The tiles, from the warp that walks over them to those that multiply: it posts each on a board of
** BOARD notes, ahead of the copies, so that where the next tile lies costs them one look. A note
** may be written anew when every warp that it was meant for has read it. `turn` counts notes.
*/
/* Post a tile whose copies begin at place `p` of the ring, or that there is none. By one thread. */
DEVICE void board_post(const struct memory *s, unsigned int *turn, const struct tile *t,
                       const struct place *p, int is_tile)
{
    const unsigned int at = *turn % BOARD, parity = *turn / BOARD % 2;
    const unsigned int note = s->board + at * NOTE_BYTES;

    barrier_wait(s->read + at * 8, parity ^ 1);
    store_shared_x4(note, t->group, t->start, t->length, t->row);
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local runs = epilogue == "copies" or back or expand ~= "none" and a_runs
//$ local beside = cluster.m > 1 and "t->beside" or runs and "t->runs" or "0"
    store_shared_x4(note + 16, t->column, p->stage << 1 | p->parity, is_tile, $(beside));
//$ if ragged == "k" then
    store_shared_x4(note + 32, (unsigned int)(u64)t->matrix, (unsigned int)((u64)t->matrix >> 32),
                    0, 0);
//$ end
    barrier_arrive(s->posted + at * 8);
    ++*turn;
}

//$ if expand ~= "none" and wide == "either" then
/* Wait until all have read the last note of which this lane knows. */
DEVICE void board_wait(const struct memory *s, unsigned int turn)
{
    barrier_wait(s->read + (turn - 1) % BOARD * 8, (turn - 1) / BOARD % 2);
}

//$ end
/* The next tile of this warp, and where its copies begin; 0 if there is none. By all lanes. */
DEVICE int board_read(const struct memory *s, unsigned int *turn, struct tile *t, struct place *p,
                      int lane)
{
    const unsigned int at = *turn % BOARD, parity = *turn / BOARD % 2;
    const unsigned int note = s->board + at * NOTE_BYTES;
    unsigned int word[NOTE_BYTES / 4] = { 0 };

    barrier_wait(s->posted + at * 8, parity);
    if (lane == 0) { /* what it has read before it arrives cannot be written over */
#pragma unroll
        for (int i = 0; i < NOTE_BYTES / 4; i += 4)
            load_shared_x4(note + i * 4, word + i);
        barrier_arrive(s->read + at * 8);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < NOTE_BYTES / 4; i++)
        word[i] = __shfl_sync(~0u, word[i], 0);
    *turn += TURNS;
    t->group = (int)word[0];
    t->start = word[1];
    t->length = word[2];
    t->row = (int)word[3];
    t->column = (int)word[4];
//$ if epilogue == "copies" or back or expand ~= "none" and a_runs then
    t->runs = word[7];
//$ end
    p->stage = uniform((int)(word[5] >> 1));
    p->parity = (unsigned int)uniform((int)(word[5] & 1));
//$ if ragged == "k" then
    t->matrix = (const void *)((u64)word[9] << 32 | word[8]);
//$ end
    return (int)word[6];
}

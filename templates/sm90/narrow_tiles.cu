//$ -- SPDX-License-Identifier: Apache-2.0
enum { MARKS = $(marks) };

/* A slot's word about its tile. */
enum { AS_F16 = 1, AS_BF16 = 2, AS_NOTHING = 3 };

/* A's base for the tiles at work: a byte for each warp's rows. */
FN unsigned int lows_of(const struct memory *s, unsigned int sequence)
{
    return s->queue + QUEUE * SLOT_BYTES + sequence % QUEUE * 4;
}

FN unsigned int marks_of(const struct memory *s)
{
    return lows_of(s, 0) + QUEUE * 4;
}

/*
** Tiles that are multiplied as f16 though not all of their values fit: each has a mark, which tiles
** far apart share, and one more says that there is any.
*/
FN void marks_clear(const struct memory *s)
{
    if (threadIdx.x <= MARKS / 4)
        store_shared_word(marks_of(s) + threadIdx.x * 4, 0);
}

FN void mark_tile(const struct memory *s, unsigned int sequence, unsigned int wrong)
{
    store_shared_byte(marks_of(s) + sequence % MARKS, 1, wrong);
    store_shared_byte(marks_of(s) + MARKS, 1, wrong);
}

FN int is_marked(const struct memory *s, unsigned int sequence)
{
    return load_shared_word(marks_of(s) + sequence % MARKS / 4 * 4) >> sequence % 4 * 8 & 1;
}

FN int is_any_marked(const struct memory *s)
{
    return load_shared_word(marks_of(s) + MARKS) & 1;
}

/* The next tile of this warp, as it is to be multiplied; 0 if there is none. */
FN int tile_read(const struct memory *s, unsigned int *sequence, struct tile *t,
                 struct pipeline *p, int lane)
{
    t->as = uniform(queue_read(s, sequence, t, p, lane));
    t->sequence = *sequence - 1;
    return t->as;
}

/* Not a tile: before some come again, their stores are complete. */
FN int tile_is_none(const struct tile *t, int lane)
{
    if (t->as == AS_NOTHING && lane == 0)
        store_wait_done();
    return t->as == AS_NOTHING;
}

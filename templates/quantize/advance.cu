//$ -- SPDX-License-Identifier: Apache-2.0
/* The next work of a CTA: a tile, and the tiles of 128 rows in the groups before its group. */
struct work {
    struct tile tile; /* group -1: there is none */
    int first;
};

/* The first warp schedules for all, 32 tiles at a time: a lane finds one of them. */
struct schedule {
    struct scheduler scheduler[32]; /* of each lane, where it costs no registers */
    struct work work[64]; /* as they come, in a ring of two halves */
};

//$ if of == "w" then
/* The tile of a lane. */
FN struct work find_tile(struct scheduler *w, int lane)
{
    struct scheduler own = *w;
    struct work e;

    own.next += (unsigned int)lane * w->stride;
    e.first = 0;
    if (!scheduler_next(&own, &e.tile))
        e.tile.group = -1;
    return e;
}
//$ else
/*
** The tile of a lane. Each lane looks for its strip among those of 32 groups, which the lanes hold,
** and all go on to the next 32 groups until each has found it. Called by all lanes of a warp.
*/
FN struct work find_tile(struct scheduler *w, int lane)
{
    const unsigned int number = w->next + (unsigned int)lane * w->stride;
    const unsigned int strip = number / w->across;
    struct work e;

    e.tile.group = -1;
    for (;;) {
        const unsigned int strips = __shfl_sync(~0u, w->strips_end, 31);
        const unsigned int at = strip - w->strips_before;
        unsigned int start, length, end;
        int owner = 0;

#pragma unroll
        for (int i = 0; i < 31; i++)
            owner += at >= __shfl_sync(~0u, w->strips_end, i);
        start = __shfl_sync(~0u, w->start, owner);
        length = __shfl_sync(~0u, w->length, owner);
        end = __shfl_sync(~0u, w->strips_end, owner);
        if (e.tile.group < 0 && at < strips) {
            e.tile.group = w->base + owner;
            e.tile.start = start;
            e.tile.length = length;
            e.first = (int)(w->strips_before + end - strips_of(length));
            tile_place(&e.tile, number - (unsigned int)e.first * w->across, strips_of(length),
                       w->across, w->band);
        }
        if (__all_sync(~0u, e.tile.group >= 0) || w->base + 32 >= w->groups)
            return e;
        w->strips_before += strips;
        w->base += 32;
        scheduler_read(w, lane);
    }
}
//$ end

/* Tiles 32 * half .. of the ring. Called by the first warp; others see them after a barrier. */
FN void look_ahead(struct schedule *a, int half, int lane)
{
    struct scheduler w = a->scheduler[lane];

    a->work[half * 32 + lane] = find_tile(&w, lane);
    w.next += 32 * w.stride;
    a->scheduler[lane] = w;
}

FN struct group group_of(const struct work *e$(of == "w" and ", const struct shape *all" or ""))
{
//$ if of == "w" then
    const struct group g = { e->tile.group, 0, all->m, 0 };
//$ else
    const struct group g = { e->tile.group, e->tile.start, (int)e->tile.length, e->first };
//$ end

    return g;
}

//$ if op ~= "dequantize" and form == "plain" and input.type ~= "copy" then
/* The values of a tile into a stage, if there is a tile. */
FN void load(const struct work *e, const struct source *s, packed *stage)
{
    const struct group g = group_of(e$(of == "w" and ", &s->all" or ""));
    const struct tile t = e->tile;

    if (t.group >= 0)
        fetch(stage, s, &g, &t);
}
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
/* What lies ahead of a CTA: a tile, and the tiles of 128 rows in the groups before its group. */
struct errand {
    struct tile tile; /* group -1: there is none */
    int first;
};

/* The first warp walks for all, 32 tiles at a time: a lane finds one of them. */
struct agenda {
    struct walk walk[32]; /* of each lane, where it costs no registers */
    struct errand errand[64]; /* as they come, in a ring of two halves */
};

//$ if of == "w" then
/* The tile of a lane. */
FN struct errand find_tile(struct walk *w, int lane)
{
    struct walk own = *w;
    struct errand e;

    own.next += (unsigned int)lane * w->stride;
    e.first = 0;
    if (!walk_next(&own, &e.tile, lane))
        e.tile.group = -1;
    return e;
}
//$ else
/*
** The tile of a lane. Each lane looks for its strip among those of 32 groups, which the lanes hold,
** and all go on to the next 32 groups until each has found it. Called by all lanes of a warp.
*/
FN struct errand find_tile(struct walk *w, int lane)
{
    const unsigned int number = w->next + (unsigned int)lane * w->stride;
    const unsigned int strip = number / w->across;
    struct errand e;

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
        walk_read(w, lane);
    }
}
//$ end

/* Tiles 32 * half .. of the ring. Called by the first warp; others see them after a barrier. */
FN void look_ahead(struct agenda *a, int half, int lane)
{
    struct walk w = a->walk[lane];

    a->errand[half * 32 + lane] = find_tile(&w, lane);
    w.next += 32 * w.stride;
    a->walk[lane] = w;
}

FN struct group group_of(const struct errand *e, const struct shape *all)
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
FN void bring(const struct errand *e, const struct source *s, held *stage)
{
    const struct group g = group_of(e, &s->all);
    const struct tile t = e->tile;

    if (t.group >= 0)
        fetch(stage, s, &g, &t);
}
//$ end

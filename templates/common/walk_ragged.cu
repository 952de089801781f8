/* A warp's lanes hold 32 consecutive groups. */
struct walk {
    const void *first_dims, *offsets;
    int sizes_bytes, groups;
    unsigned int total;          /* of the ragged axis, over all groups */
//$ if ragged == "k" then
    unsigned int strips;         /* of each group */
//$ end
    unsigned int across;         /* tiles of a strip */
    unsigned int band;           /* strips visited together, about */
    unsigned int next, stride;   /* tiles, over all groups */
    int base;                    /* this block holds groups base .. base + 31 */
    unsigned int strips_before;  /* of all groups before the block */
    unsigned int end_before;     /* where the groups before the block end */
    /* This lane's group. */
    unsigned int start, length;  /* on the ragged axis, cut to the buffer */
    unsigned int strips_end;     /* from the block's first group to this one's end */
};

//$ include "common/walk_sizes.cu"

//$ if ragged ~= "k" then
//$ local tile_axis = ragged == "n" and "TILE_N" or "TILE_M"
/* Strips of a group of this length. */
DEVICE unsigned int strips_of(unsigned int length)
{
    return (length + $(tile_axis) - 1) / $(tile_axis);
}

//$ end
/* Read the sizes of groups base .. base + 31. */
DEVICE void walk_read(struct walk *w, int lane)
{
    walk_read_sizes(w, lane);
//$ local strips = "strips_of(w->length)"
//$ if ragged == "k" then strips = "w->base + lane < w->groups ? w->strips : 0" end
    w->strips_end = warp_prefix_sum($(strips), 0x7fffffffu, lane);
}

DEVICE void walk_begin(struct walk *w, unsigned int first, unsigned int stride, int lane)
{
    w->next = first;
    w->stride = stride;
    w->base = 0;
    w->strips_before = 0;
    w->end_before = 0;
    walk_read(w, lane);
}

//$ local group_strips = ragged == "k" and "w->strips" or "strips_of(t->length)"
/* The next tile of this CTA or cluster; 0 if there is none. Called by all lanes of a warp. */
DEVICE int walk_next(struct walk *w, struct tile *t, int lane)
{
    const unsigned int strip = w->next / w->across;
    unsigned int block_strips = __shfl_sync(~0u, w->strips_end, 31);
    unsigned int strips_end_below, first;
    int owner;

    while (strip - w->strips_before >= block_strips) {
        w->base += 32;
        if (w->base >= w->groups)
            return 0;
        w->strips_before += block_strips;
        walk_read(w, lane);
        block_strips = __shfl_sync(~0u, w->strips_end, 31);
    }
    owner = __ffs(__ballot_sync(~0u, strip - w->strips_before < w->strips_end)) - 1;
    strips_end_below = __shfl_sync(~0u, w->strips_end, owner > 0 ? owner - 1 : 0);
    first = w->strips_before + (owner > 0 ? strips_end_below : 0);
    t->group = w->base + owner;
    t->start = __shfl_sync(~0u, w->start, owner);
    t->length = __shfl_sync(~0u, w->length, owner);
    tile_place(t, w->next - first * w->across, $(group_strips), w->across, w->band);
    w->next += w->stride;
    return 1;
}

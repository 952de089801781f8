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

/* Sum over lanes 0 .. lane, never more than `most`; the sum of two values must not overflow. */
DEVICE unsigned int warp_prefix_sum(unsigned int value, unsigned int most, int lane)
{
    for (int distance = 1; distance < 32; distance *= 2) {
        const unsigned int below = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance)
            value = value + below < most ? value + below : most;
    }
    return value;
}

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
    const int group = w->base + lane;
    long long length = 0, start = 0;

    if (group < w->groups) {
        length = group_length(w->first_dims, w->offsets, w->sizes_bytes, group);
        if (w->offsets)
            start = size_at(w->offsets, w->sizes_bytes, group);
    }
    w->length = cut_to_rows(length, w->total);
    w->start = cut_to_rows(start, w->total);
    if (!w->offsets) {
        unsigned int end = warp_prefix_sum(w->length, w->total, lane);
        end = end + w->end_before < w->total ? end + w->end_before : w->total;
        w->start = __shfl_up_sync(~0u, end, 1);
        if (lane == 0)
            w->start = w->end_before;
        w->end_before = __shfl_sync(~0u, end, 31);
    }
    if (w->length > w->total - w->start)
        w->length = w->total - w->start;
//$ local strips = ragged == "k" and "group < w->groups ? w->strips : 0" or "strips_of(w->length)"
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

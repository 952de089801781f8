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

//$ if ragged ~= "none" then
/* The sizes of this lane's group, one of base .. base + 31, and where the block ends. */
DEVICE void walk_read_sizes(struct walk *w, int lane)
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
}
//$ end

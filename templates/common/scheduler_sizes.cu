//$ -- SPDX-License-Identifier: Apache-2.0
/* Sum over lanes 0 .. lane, never more than `most`; the sum of two values must not overflow. */
FN unsigned int warp_prefix_sum(unsigned int value, unsigned int most, int lane)
{
//$ if rolled then
#pragma unroll 1
//$ end
    for (int distance = 1; distance < 32; distance *= 2) {
        const unsigned int below = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance)
            value = value + below < most ? value + below : most;
    }
    return value;
}

/*
** The start of this lane's group, groups in sequence; `before` is the start of the block's first
** group and becomes the end of its last. Neither is ever more than `most`.
*/
FN unsigned int scheduler_start(unsigned int length, unsigned int most, unsigned int *before,
                                int lane)
{
    unsigned int end = warp_prefix_sum(length, most, lane), start;

    end = end + *before < most ? end + *before : most;
    start = __shfl_up_sync(~0u, end, 1);
    if (lane == 0)
        start = *before;
    *before = __shfl_sync(~0u, end, 31);
    return start;
}

/* The sizes of this lane's group, one of base .. base + 31, and where the block ends. */
FN void scheduler_read_sizes(struct scheduler *w, int lane)
{
    const int group = w->base + lane;
    long long length = 0, start = 0;

    if (group < w->groups) {
//$ local bytes = rolled and "bytes" or "w->sizes_bytes"
//$ if rolled then
        const int bytes = afresh(w->sizes_bytes); /* or there would be a loop for each */
//$ end
        length = group_length(w->first_dims, w->offsets, $(bytes), group);
        if (w->offsets)
            start = size_at(w->offsets, $(bytes), group);
    }
    w->length = cut_to_rows(length, w->total);
    w->start = cut_to_rows(start, w->total);
    if (!w->offsets)
        w->start = scheduler_start(w->length, w->total, &w->end_before, lane);
    if (w->length > w->total - w->start)
        w->length = w->total - w->start;
}

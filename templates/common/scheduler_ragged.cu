//$ -- SPDX-License-Identifier: Apache-2.0
/* A warp's lanes hold 32 consecutive groups. */
struct scheduler {
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

//$ include("common/scheduler_sizes.cu", { rolled = false })

//$ local tile_axis = ragged == "n" and "TILE_N" or "TILE_M"
/* Strips of a group of this length. */
FN unsigned int strips_of(unsigned int length)
{
    return (length + $(tile_axis) - 1) / $(tile_axis);
}

/* Read the sizes of groups base .. base + 31. */
FN void scheduler_read(struct scheduler *w, int lane)
{
    scheduler_read_sizes(w, lane);
//$ local strips = "strips_of(w->length)"
//$ if ragged == "k" then strips = "w->base + lane < w->groups ? w->strips : 0" end
    w->strips_end = warp_prefix_sum($(strips), 0x7fffffffu, lane);
}

FN void scheduler_begin(struct scheduler *w, unsigned int first, unsigned int stride, int lane)
{
    w->next = first;
    w->stride = stride;
    w->base = 0;
    w->strips_before = 0;
    w->end_before = 0;
    scheduler_read(w, lane);
}

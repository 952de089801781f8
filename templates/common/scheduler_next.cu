//$ -- SPDX-License-Identifier: Apache-2.0
//$ local group_strips = ragged == "k" and "w->strips" or "strips_of(t->length)"
/* The next tile of this CTA or cluster; 0 if there is none. Called by all lanes of a warp. */
FN int scheduler_next(struct scheduler *w, struct tile *t, int lane)
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
        scheduler_read(w, lane);
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

//$ -- SPDX-License-Identifier: Apache-2.0
/* One code, and four in a word. */
FN unsigned int largest_of(unsigned int most, unsigned int codes)
{
#pragma unroll
    for (int i = 0; i < 32; i += 8)
        most = most > (codes >> i & 255) ? most : codes >> i & 255;
    return most;
}

/*
** Load all of the CTA's tiles, and once they are stored those again that are marked. A slot without
** a tile is posted in between: a warp that reads it has stored its tiles. By one warp.
*/
FN void scheduler_twice(const struct memory *s, struct scheduler *w, struct pipeline *p,
                        unsigned int *sequence, const struct maps *maps, unsigned int first,
                        unsigned int stride, int k, int lane)
{
    struct tile t;

#pragma unroll
    for (int as = AS_F16; as <= AS_BF16; as++) {
//$ local reader = scheduler_rolled and "" or ", lane"
        scheduler_begin(w, first, stride$(reader));
#pragma unroll 1
        while (uniformly(scheduler_next(w, &t, lane))) {
            if (as == AS_BF16 && !is_marked(s, w->next / w->stride - 1)) /* as first posted */
                continue;
            if (elect_lane()) {
                queue_post(s, sequence, &t, p, as);
                load_tile(s, p, &t, maps, k);
            }
            __syncwarp();
        }
        if (as == AS_BF16)
            break;
        if (elect_lane())
            queue_post(s, sequence, &t, p, AS_NOTHING);
        queue_wait(s, __reduce_max_sync(~0u, *sequence)); /* only one lane counts them */
        if (!is_any_marked(s))
            break;
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
/* All groups are alike: a tile's number tells its group. */
struct scheduler {
    int groups;
    unsigned int strips, across; /* of each group */
    unsigned int band;           /* strips visited together, about */
    unsigned int next, stride;   /* tiles, over all groups */
};

FN void scheduler_begin(struct scheduler *w, unsigned int first, unsigned int stride)
{
    w->next = first;
    w->stride = stride;
}

/* The next tile of this CTA or cluster; 0 if there is none. */
FN int scheduler_next(struct scheduler *w, struct tile *t)
{
    const unsigned int tiles = w->strips * w->across, group = w->next / tiles;

    if (group >= (unsigned int)w->groups)
        return 0;
    t->group = (int)group;
    tile_place(t, w->next - group * tiles, w->strips, w->across, w->band);
    w->next += w->stride;
    return 1;
}

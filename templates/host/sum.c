//$ -- SPDX-License-Identifier: Apache-2.0
/*
** dbias of $(of) in $(recipe), on the host: sums of 32 rows each, which a product leaves in the
** workspace, added up in ascending order. A group without rows gets zeros, or stays as it is where
** sums are added to dbias.
**
**   partials  [tiles * 4, k]  a group's begin with its first tile of 128 rows
**   dbias     [groups, k]
*/
//$ include "host/quantize_head.c"

/* One feature of a group. */
static void sum_feature(const struct work *w, const struct group *g, int feature)
{
    const float *part = w->partials + (long long)g->first * 4 * w->all.k + feature;
    float *const to = &w->dbias[(long long)g->number * w->all.k + feature];
    float sum = -0.0f; /* to which -0 may be added */

    for (int row = 0; row < g->length; row += 32, part += w->all.k)
        sum = add_rn(sum, *part);
    if (!w->dbias_add)
        *to = g->length > 0 ? sum : 0;
    else if (g->length > 0)
        *to = add_rn(*to, sum);
}

/* `next` counts the features of all groups, 64 at a time. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int feature = 0; feature < w->all.k; feature++)
        if ((*next + feature / 64) % w->workers == w->worker)
            sum_feature(w, g, feature);
    *next += ceil_div(w->all.k, 64);
}

//$ include "host/quantize_entry.c"

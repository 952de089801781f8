//$ -- SPDX-License-Identifier: Apache-2.0
/*
** dprob in $(recipe), on the host: the sums of 64 columns each, which a product that goes back
** through an activation leaves in the workspace, added up in ascending order.
**
**   row_partials  [ceil(k / 64), m]
**   dprob         [m]               rows outside of every group are not written
*/
//$ include "host/quantize_head.c"

/* One group's rows; `next` counts those of all groups.               COUPLED: row partials */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int row = 0; row < g->length; row++) {
        const long long at = row_of(w, g, row);
        float sum = -0.0f; /* to which -0 may be added */

        if ((*next)++ % w->workers != w->worker)
            continue;
        for (int i = 0; i < ceil_div(w->all.k, 64); i++)
            sum = add_rn(sum, w->row_partials[(long long)i * w->all.m + at]);
        w->dprob[at] = sum;
    }
}

//$ include "host/quantize_entry.c"

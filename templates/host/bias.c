//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A bias of each group, added to its rows in place, on the host, in any type; each number is
** rounded once. The row's probability, where there is one, multiplies the bias.
**
**   out  [m, k]  rows outside of every group are not written
*/
//$ include "host/quantize_head.c"

//$ include "host/quantize_tile.c"

//$ include "host/store_out.c"

static void add_bias(const struct work *w, const struct group *g, long long row)
{
    const float *bias = w->bias + (long long)g->number * w->all.k;
    const float weight = w->probability ? w->probability[row] : 1;

    for (int f = 0; f < w->all.k; f++) {
        const long long at = row * w->out_stride + f;

        store_out(w, at, add_rn(load_in(w, w->out, at), mul_rn(bias[f], weight)));
    }
}

/* One group's rows. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int row = 0; row < g->length; row++)
        if ((*next)++ % w->workers == w->worker)
            add_bias(w, g, row_of(w, g, row));
}

//$ include "host/quantize_entry.c"

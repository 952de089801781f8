//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The gradient of each row's probability, which multiplies an activation's result: the sum over
** features of that result times its gradient, on the host, from any type of input.
**
**   dprob  [m]  rows outside of every group are not written
**
** 32 sums, of features 2 l and 2 l + 1 of every 64 in ascending order; then of l and l + 16, of
** l and l + 8, .. l + 1. All in fp32.                                  COUPLED: dprob
*/
//$ include "host/quantize_head.c"

//$ include "host/quantize_tile.c"

//$ include "host/sum_lanes.c"

static float sum_row(const struct work *w, long long row)
{
    const int features = GATED >> w->activation & 1 ? w->all.k / 2 : w->all.k;
    float sum[32] = { 0 };

    for (int f = 0; f < features; f++) {
        const long long at = row * w->saved_stride;
        long long a, b;
        float y;

        find_operands(w, f, features, &a, &b);
        y = activate(w->activation, load_in(w, w->saved, at + a), load_in(w, w->saved, at + b),
                     w->limit, w->slope, w->shift);
        sum[f / 2 % 32] =
            add_rn(sum[f / 2 % 32], mul_rn(load_in(w, w->in, row * w->in_stride + f), y));
    }
    return sum_lanes(sum);
}

/* One group's rows. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int row = 0; row < g->length; row++)
        if ((*next)++ % w->workers == w->worker)
            w->dprob[row_of(w, g, row)] = sum_row(w, row_of(w, g, row));
}

//$ include "host/quantize_entry.c"

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The code below a product that stops at its sums, on the host: d = in + bias * probability in
** fp32, each element rounded once. There is no activation.
**
**   in   [m, k]  alpha * a * b^T in fp32
**   out  [m, k]  rows outside of every group are not written
*/
//$ include "host/quantize_head.c"

//$ include "host/store_out.c"

static void finish_row(const struct work *w, const struct group *g, long long row)
{
    const float *in = (const float *)w->in + row * w->in_stride;
    const float *bias = w->bias ? w->bias + (long long)g->number * w->all.k : 0;
    const float weight = w->probability ? w->probability[row] : 1;

    for (int f = 0; f < w->all.k; f++)
        store_out(w, row * w->out_stride + f,
                  bias ? add_rn(in[f], mul_rn(bias[f], weight)) : in[f]);
}

/* One group's rows. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int row = 0; row < g->length; row++)
        if ((*next)++ % w->workers == w->worker)
            finish_row(w, g, row_of(w, g, row));
}

//$ include "host/quantize_entry.c"

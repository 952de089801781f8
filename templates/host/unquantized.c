//$ -- SPDX-License-Identifier: Apache-2.0
/*
** For a tensor that $(recipe) keeps as $(element.type): an activation's result, or the gradient of
** its input, and sums over rows, on the host, from any type of input and in any form.
**
**   row    [m, k]       the values, rounded once more if the input has another type
**   dbias  [groups, k]  sums over the rows: of 32 rows each, in order, then of these
**
** Either may be null. Tiles of 128 x 128 are dealt out to the workers; the result does not depend
** on their number. Compile with -ffp-contract=off.
*/
//$ include "host/quantize_head.c"

//$ include "host/quantize_tile.c"

//$ include "host/quantize_sums.c"

/* A tile of the result; rows end where the padding to whole 16 bytes does. */
static void store_tile(const struct work *w, const struct group *g, int row, int feature)
{
    float tile[TILE][TILE];
    const int end = (int)w->row.stride - feature;

    load_tile(w, g, row, feature, tile);
    for (int i = 0; i < TILE && row + i < g->length; i++) {
        unsigned short *to = (unsigned short *)w->row.data +
                             row_of(w, g, row + i) * w->row.stride + feature;
        for (int j = 0; j < TILE && j < end; j++)
            to[j] = (unsigned short)to_$(element.type)(tile[i][j]);
    }
}

/* One group's tiles. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int feature = 0; feature < w->all.k; feature += TILE) {
        for (int row = 0; row < g->length && w->row.data; row += TILE)
            if ((*next)++ % w->workers == w->worker)
                store_tile(w, g, row, feature);
        if (w->dbias && (*next)++ % w->workers == w->worker)
            sum_rows(w, g, feature);
    }
}

//$ include "host/quantize_entry.c"

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The largest magnitudes that quantizing needs before it begins, on the host, from any type of
** input and in any form.
**
//$ if scale.span == "row" then
**   row_amax     [m]          of each row
**   column_amax  [groups, k]  of each feature of each group
//$ elseif scale.span == "tensor" then
**   row_amax, column_amax  [1]  of all of it
//$ else
**   row_amax, column_amax  [groups]  of each group
//$ end
**
** As bits, which are ordered as the magnitudes are; all zero before. NaN is left out. Either may be
** null, and both may be the same.
*/
//$ include "host/quantize_head.c"

//$ include "host/quantize_tile.c"

/* A tile's part of the columnwise tensor's maxima. */
static void note_column(const struct work *w, const struct group *g, int feature,
                        float tile[TILE][TILE])
{
    float turned[TILE][TILE];

    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            turned[j][i] = tile[i][j];
    for (int j = 0; j < TILE && feature + j < w->all.k; j++) {
//$ if scale.hadamard then
        for (int i = 0; i < TILE; i += 16)
            hadamard16(turned[j] + i, $(scale.signs));
//$ end
//$ if scale.span == "row" then
        note_amax(&w->column.amax[(long long)g->number * w->all.k + feature + j], turned[j], TILE);
//$ else
//$ local at = scale.span == "tensor" and "0" or "g->number"
        note_amax(&w->column.amax[$(at)], turned[j], TILE);
//$ end
    }
    (void)g;
}

static void note_tile(const struct work *w, const struct group *g, int row, int feature)
{
    float tile[TILE][TILE];

    load_tile(w, g, row, feature, tile);
    for (int i = 0; i < TILE && row + i < g->length && w->row.amax; i++)
//$ if scale.span == "row" then
        note_amax(&w->row.amax[row_of(w, g, row + i)], tile[i], TILE);
//$ else
        note_amax(&w->row.amax[$(scale.span == "tensor" and "0" or "g->number")], tile[i], TILE);
//$ end
    if (w->column.amax && w->column.amax != w->row.amax)
        note_column(w, g, feature, tile);
}

/* One group's tiles. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
    for (int feature = 0; feature < w->all.k; feature += TILE)
        for (int row = 0; row < g->length; row += TILE)
            if ((*next)++ % w->workers == w->worker)
                note_tile(w, g, row, feature);
}

//$ include "host/quantize_entry.c"

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Quantize on the host, from any type of input and in any form.
**
**   row     [m, k]       the rowwise tensor, scaled along k
**   column  [k, tokens]  the columnwise tensor, scaled along the rows: transposed, each group from
**                        a multiple of 128 on, with zeros up to the next one
**   dbias   [groups, k]  sums over the rows: of 32 rows each, in order, then of these
**
** Any of the three may be null. Tiles of 128 x 128 are dealt out to the workers; the result does
** not depend on their number. Compile with -ffp-contract=off.
*/
//$ include "host/quantize_head.c"

//$ include "host/quantize_rules.c"

//$ include "host/quantize_tile.c"

//$ include "host/quantize_lines.c"

//$ include "host/quantize_column.c"

/* A tile of the rowwise and the columnwise tensor. */
static void quantize_tile(const struct work *w, const struct group *g, int row, int feature)
{
    float tile[TILE][TILE];
    const struct scales s = row_scales(g, &w->all);
    const long long first = row_of(w, g, row);
    const struct lines lines = { &w->row, &s, row, feature, g->length - row,
                                 (int)w->row.stride - feature, first * w->row.stride + feature,
                                 first };

    load_tile(w, g, row, feature, tile);
//$ if scale.delayed then
    note_amax(w->history, tile, TILE * TILE);
//$ end
    if (w->row.data && w->input != IN_COPY)
        quantize_lines(w, g, &lines, tile);
    if (w->column.data)
        quantize_column(w, g, row, feature, tile);
}

//$ include "host/quantize_sums.c"

//$ local by_input = scale.by_input and "w->input, " or ""
/* The scales of a group without rows, as of zeros. */
static void scale_nothing(const struct work *w, const struct group *g)
{
    const struct copy *copies[2] = { &w->row, &w->column };

    for (int i = 0; i < 2; i++) {
        const struct copy *copy = copies[i];
//$ if not scale.global then
        $(scale.type == "f32" and "float" or "unsigned int") sf;

//$ end
        if (!copy->data || (copy == &w->row && w->input == IN_COPY))
            continue;
//$ if scale.global then
        global_of(0, &copy->global[g->number]);
//$ else
        scale_of($(by_input)0, &sf);
//$ if scale.span == "group" then
        copy->sf[g->number] = (sf_element)sf;
//$ else
        for (int f = 0; f < w->all.k && i == 1; f++)
            copy->sf[(long long)g->number * w->all.k + f] = (sf_element)sf;
//$ end
//$ end
    }
}

/* One group's tiles. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
//$ if scale.span == "group" or scale.span == "row" or scale.global then
    if (g->length == 0 && w->worker == 0)
        scale_nothing(w, g);
//$ end
    for (int feature = 0; feature < w->all.k; feature += TILE) {
        for (int row = 0; row < g->length; row += TILE)
            if ((*next)++ % w->workers == w->worker)
                quantize_tile(w, g, row, feature);
        if (w->dbias && (*next)++ % w->workers == w->worker)
            sum_rows(w, g, feature);
    }
}

//$ include "host/quantize_entry.c"

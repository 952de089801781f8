//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The code below from the groups' sizes. Tiles of 128 rows begin with each group, so `first`, the
** tiles of the groups before, gives the position of anything padded to 128 rows.
*/
struct group {
    int number;
    unsigned int start; /* its first row */
    int length;         /* rows */
    int first;          /* tiles of 128 rows in the groups before it */
};

/* The sizes that all groups have in common. */
struct shape {
    int m, k, groups; /* rows: of all groups, or of each where they are alike */
};

FN int ceil_div(int length, int size)
{
    return length / size + (length % size > 0);
}

/* Tiles of 128 rows that all groups together have at most. */
FN int most_tiles(const struct shape *all)
{
    return (int)((all->m + 127ll * all->groups) / 128);
}

//$ if scale then
//$ local across, down = scale.k > 0 and scale.k or 1, scale.lines
/* For the rowwise tensor: a row of scales for each $(down == 1 and "row" or down .. " rows"). */
FN struct scales row_scales(const struct group *g, const struct shape *all)
{
    struct scales s;

    s.columns = s.count_j = ceil_div(all->k, $(across));
    s.count_i = ceil_div(g->length, $(down));
    s.limit_j = (int)padded(s.columns, PAD_COLUMNS);
    s.base = s.i = s.j = 0;
//$ if of == "w" then
    s.rows = s.count_i;
    s.limit_i = (int)padded(s.rows, PAD_ROWS);
    s.base = g->number * scales_of(s.rows, s.columns);
//$ elseif scale.apart then
    s.rows = s.count_i;
    s.limit_i = (int)padded(s.rows, PAD_ROWS);
    s.base = scales_of(g->first * $(scale.tile_rows), s.columns);
//$ elseif down > 1 then
    s.rows = most_tiles(all) * $(128 // down);
    s.limit_i = s.count_i;
    s.i = g->first * $(128 // down);
//$ else
    s.rows = all->m;
    s.limit_i = s.count_i;
    s.i = (int)g->start;
//$ end
    return s;
}

//$ local what = down == 1 and "feature" or down .. " features"
/* For the columnwise tensor: a row of scales for each $(what). */
FN struct scales column_scales(const struct group *g, const struct shape *all)
{
    struct scales s;

    s.rows = s.count_i = ceil_div(all->k, $(down));
    s.count_j = ceil_div(g->length, $(across));
    s.limit_i = (int)padded(s.rows, PAD_ROWS);
    s.base = s.i = s.j = 0;
//$ if of == "w" then
    s.columns = s.count_j;
    s.limit_j = (int)padded(s.columns, PAD_COLUMNS);
    s.base = g->number * scales_of(s.rows, s.columns);
//$ else
    s.limit_j = ceil_div(g->length, 128) * $(128 // across);
//$ if scale.apart or scale.order == "columns" then
    s.columns = s.limit_j;
//$ if scale.tile_columns > 128 // across then
    s.limit_j = (int)padded(s.columns, PAD_COLUMNS);
//$ end
    s.base = scales_of(s.rows, g->first * $(scale.tile_columns));
//$ else
    s.columns = most_tiles(all) * $(128 // across);
    s.j = g->first * $(128 // across);
//$ end
//$ end
    return s;
}
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local wide = scale.k
//$ local more = scale.global and ", global" or ""
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
/*
** A factor for each row and each feature of a tile: half of the threads find one of a row, the
** others one of a feature, and all of them share.
*/
//$ if scale.span == "row" then
/* The largest magnitude of a line, found before. */
FN float largest_of_line(const struct group *g, const struct tile *t, const struct shape *all,
                         const unsigned int *amax, int side, int line)
{
//$ local first = of == "w" and "(long long)g->number * all->m" or "(long long)g->start"
    const long long at = side ? (long long)g->number * all->k + t->column + line
                              : $(first) + t->row + line;
    const int inside = side ? t->column + line < all->k : t->row + line < g->length;

    return inside && amax ? float_of(amax[at]) : 0;
}
//$ else
/* The largest magnitude of a line, from all warps that have a part of it. */
FN float largest_of_line(const struct shared *shared, int side, int line)
{
    if (!side)
        return larger(shared->row_most[0][line], shared->row_most[1][line]);
    return larger(larger(shared->column_most[0][line], shared->column_most[1][line]),
                  larger(shared->column_most[2][line], shared->column_most[3][line]));
}

/* A thread's part of all lines. */
FN void share_maxima(struct shared *shared, const struct coord *p, const packed *v)
{
    float of_row[1];
//$ if scale.hadamard then
    const float of_columns[2] = { largest_transformed<ROWS>(v, 0),
                                  largest_transformed<ROWS>(v, 1) };
//$ else
    const magnitudes m = largest_of<ROWS>(v);
    const float of_columns[2] = { low_of(m), high_of(m) };
//$ end
    float *const place = &shared->column_most[p->part][64 * p->half + 2 * p->lane];

    largest_of_row(v - p->lane, p->lane, of_row);
    shared->row_most[p->half][ROWS * p->part + p->lane] = of_row[0];
    place[0] = of_columns[0];
    place[1] = of_columns[1];
    __syncthreads();
}
//$ end

/* The stored scale of a line, with its first tile. */
FN void store_line_sf(const struct group *g, const struct tile *t, const struct shape *all,
                      sf_element *to, int side, int line, sf_element sf)
{
//$ if scale.span == "row" then
//$ local first = of == "w" and "(long long)g->number * all->m" or "(long long)g->start"
    if (side && t->row == 0 && t->column + line < all->k)
        to[(long long)g->number * all->k + t->column + line] = sf;
    if (!side && t->column == 0 && t->row + line < g->length)
        to[$(first) + t->row + line] = sf;
//$ else
    if (side) {
        const struct scales s = column_scales(g, all);
        store_sf(to, &s, t->column + line, t->row / ACROSS, sf);
    } else {
        const struct scales s = row_scales(g, all);
        store_sf(to, &s, t->row + line, t->column / ACROSS, sf);
    }
//$ end
}

//$ local values = scale.span == "block" and "const packed *v, " or ""
FN void find_factors(struct shared *shared, const struct coord *p, const struct group *g,
                     const struct tile *t, const struct shape *all, const struct copy *row,
                     const struct copy *column, $(values)struct factors *f)
{
    const int side = p->warp / 4, line = p->warp % 4 * 32 + p->lane;
    const int wanted = (side ? column->data : row->data) != 0;
//$ if scale.span == "row" or scale.global then
    const unsigned int *const amax = side ? column->amax : row->amax;
//$ end
    $(sf_type) sf;
//$ if scale.global then
    float *const to = wanted ? (side ? column->global : row->global) : 0;
    const float global = wanted ? global_factor(amax, to, g, t) : 0;
//$ end

//$ if scale.span == "block" then
    share_maxima(shared, p, v);
//$ end
//$ local from = scale.span == "row" and "g, t, all, amax" or "shared"
    shared->line_factor[side][line] =
        scale_of(largest_of_line($(from), side, line)$(more), &sf);
    if (wanted)
        store_line_sf(g, t, all, side ? column->sf : row->sf, side, line, (sf_element)sf);
    __syncthreads();
    f->column[0][0] = shared->line_factor[1][64 * p->half + 2 * p->lane];
    f->column[1][0] = shared->line_factor[1][64 * p->half + 2 * p->lane + 1];
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A quantized tensor back to values of any type, on the host.
**
**   out  [m, k]  from the rowwise tensor, or where that is null from the columnwise tensor
//$ if of ~= "w" then
**   align        0, or of the columnwise tensor: groups begin at multiples of 128 there, as in the
**                copy, and their last rows reach to a multiple of so many
//$ end
**
** One rounding for each factor, to fp32, and one to the result's type. Transformed values stay
** transformed.
*/
//$ include "host/quantize_head.c"

/* Value `at` of a copy, with its scale. */
static float value(const struct work *w, const struct group *g, const struct copy *copy,
                   long long at, long long sf)
{
//$ if element.bits == 4 then
    const unsigned code = copy->data[at / 2] >> at % 2 * 4 & 15;
//$ else
    const unsigned code = copy->data[at];
//$ end

    (void)w, (void)g;
//$ local global = scale.global and ", copy->global ? copy->global[g->number] : 1" or ""
//$ if scale.zeros then
    return value_of(code, copy->sf[sf]);
//$ else
    return value_of(code, from_$(scale.type)(copy->sf[sf])$(global));
//$ end
}

//$ include "host/store_out.c"

/* Dequantize one row. */
static void dequantize_row(const struct work *w, const struct group *g, int row)
{
    const int from_row = w->row.data != 0;
    const long long line = row_of(w, g, row);
//$ if of ~= "w" then
    const long long to = w->align ? (long long)g->first * TILE + row : line;
//$ else
    const long long to = line;
//$ end
//$ if scale.span == "block" then
    const struct scales s = from_row ? row_scales(g, &w->all)
                                     : column_scales(g, &w->all);
//$ end

    for (int f = 0; f < w->all.k; f++) {
        const long long feature = (long long)g->number * w->all.k + f; /* among all groups' */
//$ if of == "w" then
        const long long column = feature * w->column.stride + row;
//$ else
        const long long column = f * w->column.stride + g->first * TILE + row;
//$ end
//$ if scale.span == "block" then
        const int i = from_row ? row : f, j = from_row ? f : row;
        const long long sf = scale_at(&s, i / SF_LINES, j / ACROSS);
//$ elseif scale.span == "row" then
        const long long sf = from_row ? line : feature;
//$ else
        const long long sf = $(scale.span == "group" and "g->number" or "0");
//$ end
        (void)feature;
        store_out(w, to * w->out_stride + f,
                  from_row ? value(w, g, &w->row, line * w->row.stride + f, sf)
                           : value(w, g, &w->column, column, sf));
    }
}

/* One group's rows. `next` counts those of all groups. */
static void do_group(const struct work *w, const struct group *g, long long *next)
{
//$ local rows = of == "w" and "g->length" or "rows"
//$ if of ~= "w" then
    const int rows = w->align ? ceil_div(g->length, w->align) * w->align : g->length;

//$ end
    for (int row = 0; row < $(rows); row++)
        if ((*next)++ % w->workers == w->worker)
            dequantize_row(w, g, row);
}

//$ include "host/quantize_entry.c"

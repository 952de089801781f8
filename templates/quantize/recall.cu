//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "quantize/value.c"

/* The values of feature f in the rowwise tensor. */
FN float copied(const struct source *s, const struct group *g, int row, int f)
{
//$ local first = of == "w" and "(long long)g->number * s->all.m" or "(long long)g->start"
    const long long i = $(first) + row, at = i * s->row_stride + f;
//$ if element.bits == 4 then
    const unsigned code = s->row[at / 2] >> at % 2 * 4 & 15;
//$ else
    const unsigned code = s->row[at];
//$ end
//$ if scale.span == "block" then
    const struct scales m = row_scales(g, &s->all);
    const long long sf = scale_at(&m, row / SF_LINES, f / ACROSS);
//$ elseif scale.span == "row" then
    const long long sf = i;
//$ else
    const long long sf = $(scale.span == "group" and "g->number" or "0");
//$ end
//$ local global = scale.global and ", s->row_global[g->number]" or ""

    return value_of(code, from_$(scale.type)(s->row_sf[sf])$(global));
}

/* The thread's values, row `row` of the group and feature f being the first. */
FN void fill(packed *v, const struct source *s, const struct group *g, int row, int f)
{
    const int rows = f < s->all.k ? g->length - row : 0;

#pragma unroll 4
    for (int r = 0; r < ROWS; r++)
        v[r * LINE] = r >= rows ? pack(0, 0)
                                : pack(copied(s, g, row + r, f),
                                       f + 1 < s->all.k ? copied(s, g, row + r, f + 1) : 0);
}

//$ -- SPDX-License-Identifier: Apache-2.0
/* A tile of the columnwise tensor: lines are features. Those of w end where their matrix does. */
static void quantize_column(const struct work *w, const struct group *g, int row, int feature,
                            float tile[TILE][TILE])
{
    float turned[TILE][TILE];
    const struct scales s = column_scales(g, &w->all);
    const long long first = (long long)g->number * w->all.k + feature; /* among all groups' */
    struct lines lines = { &w->column, &s, feature, row, w->all.k - feature, TILE, 0, first };

//$ if of == "w" then
    lines.end = (int)w->column.stride - row;
    lines.at = first * w->column.stride + row;
//$ else
    lines.at = feature * w->column.stride + g->first * TILE + row;
//$ end
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            turned[j][i] = tile[i][j];
//$ if scale.hadamard then
    for (int j = 0; j < TILE; j++)
        for (int i = 0; i < TILE; i += 16)
            hadamard16(turned[j] + i, $(scale.signs));
//$ end
    quantize_lines(w, g, &lines, turned);
}

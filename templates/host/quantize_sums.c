//$ -- SPDX-License-Identifier: Apache-2.0
/* Up to 128 features, summed over all rows of a group; values summed directly count as often as
   the row's probability says. A group without rows adds nothing to dbias. */
static void sum_rows(const struct work *w, const struct group *g, int feature)
{
    float tile[TILE][TILE];
    float sum[TILE] = { 0 };

    for (int row = 0; row < g->length; row++) {
        const int weighs = w->form == PLAIN && w->probability;
        const float weight = weighs ? w->probability[row_of(w, g, row)] : 1;
        float part[TILE];
        if (row % TILE == 0)
            load_tile(w, g, row, feature, tile);
        for (int j = 0; j < TILE; j++) {
            const float value = mul_rn(tile[row % TILE][j], weight);
            part[j] = row % 32 ? add_rn(part[j], value) : value;
        }
        for (int j = 0; j < TILE && (row % 32 == 31 || row == g->length - 1); j++)
            sum[j] = row < 32 ? part[j] : add_rn(sum[j], part[j]);
    }
    for (int j = 0; j < TILE && feature + j < w->all.k; j++) {
        float *const to = &w->dbias[(long long)g->number * w->all.k + feature + j];
        if (!w->dbias_add)
            *to = sum[j];
        else if (g->length > 0)
            *to = add_rn(*to, sum[j]);
    }
}

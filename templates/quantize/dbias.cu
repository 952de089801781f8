//$ -- SPDX-License-Identifier: Apache-2.0
/* A thread's part of dbias: the sums of its 32 rows, which another kernel adds up. */
FN void sum_part(float *partials, const struct coord *p, const struct group *g,
                 const struct tile *t, const struct shape *all, const float sum[2])
{
    const int row = t->row + ROWS * p->part, feature = t->column + 64 * p->half + 2 * p->lane;
    const long long part = (long long)g->first * (TILE_M / ROWS) + row / ROWS;

    if (row < g->length && feature < all->k)
        partials[part * all->k + feature] = sum[0];
    if (row < g->length && feature + 1 < all->k)
        partials[part * all->k + feature + 1] = sum[1];
}

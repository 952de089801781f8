//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Scale (i, j) of a group. Padding is zero: inside a tile it is stored as scales are; padding that
** no tile reaches is stored with the last scale before it.
*/
FN void store_sf(sf_element *sf, const struct scales *s, int i, int j, sf_element value)
{
    const int inside = i < s->count_i && j < s->count_j;

    if (i < s->limit_i && j < s->limit_j)
        sf[scale_at(s, i, j)] = inside ? value : (sf_element)0;
//$ local down, across = 128 // scale.lines, 128 // scale.k
//$ if across % scale.pad_columns > 0 then
    if ((j + 1) % $(across) == 0 && j + 1 >= s->count_j)
        for (int column = j + 1; column < s->limit_j && i < s->limit_i; column++)
            sf[scale_at(s, i, column)] = 0;
//$ end
//$ if down % scale.pad_rows > 0 then
    if ((i + 1) % $(down) == 0 && i + 1 >= s->count_i)
        for (int row = i + 1; row < s->limit_i; row++)
            for (int column = j; column < s->limit_j; column++)
                sf[scale_at(s, row, column)] = 0;
//$ end
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
/* The factor of group `at`; its first tile stores the scale. */
FN float given_factor(const struct copy *copy, long long at, int is_first)
{
    $(sf_type) sf;
//$ if scale.delayed then
    const float factor = copy->given[0];

    sf = copy->given[1];
//$ else
    const float factor = scale_of(float_of(copy->amax[at]), &sf);

//$ end
    if (is_first)
        copy->sf[at] = (sf_element)sf;
    return factor;
}

/* One factor for all of a tile, known before its first value. */
FN void find_factors(const struct group *g, const struct tile *t, const struct copy *row,
                     const struct copy *column, struct factors *f)
{
//$ local at = scale.span == "group" and "g->number" or "0"
//$ local first = scale.span == "group" and "" or "g->first + "
    const int is_first = $(first)t->row + t->column + (int)threadIdx.x == 0;

    f->row[0] = row->data ? given_factor(row, $(at), is_first) : 0;
    f->column[0][0] = f->column[1][0] =
        column->data ? given_factor(column, $(at), is_first) : 0;
}

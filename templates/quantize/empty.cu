//$ -- SPDX-License-Identifier: Apache-2.0
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
/* The scales of a group without rows, as of zeros. */
//$ local by_row = scale.span == "row"
//$ local row = by_row and "" or "const struct copy *row, "
FN void do_nothing(int group, $(by_row and "int k, " or row)const struct copy *column)
{
//$ if scale.global then
    if (row->data && threadIdx.x == 0)
        global_of(0, &row->global[group]);
    if (column->data && threadIdx.x == 0)
        global_of(0, &column->global[group]);
//$ elseif scale.span == "group" then
    $(sf_type) sf;

    scale_of(0, &sf);
    if (row->data && threadIdx.x == 0)
        row->sf[group] = (sf_element)sf;
    if (column->data && threadIdx.x == 0)
        column->sf[group] = (sf_element)sf;
//$ elseif scale.span == "row" then
    $(sf_type) sf;

    scale_of(0, &sf);
    for (int f = threadIdx.x; f < k && column->data; f += THREADS)
        column->sf[(long long)group * k + f] = (sf_element)sf;
//$ end
}

/* All of them, one for each CTA at a time. */
FN void do_empty(const void *first_dims, const void *offsets, int bytes, const struct shape *all,
                 $(row)const struct copy *column)
{
    for (int i = blockIdx.x; i < all->groups; i += gridDim.x) {
        const unsigned int start = offsets ? cut_to_rows(size_at(offsets, bytes, i), all->m) : 0;
        if (cut_to_rows(group_length(first_dims, offsets, bytes, i), all->m - start) == 0)
            do_nothing(i, $(by_row and "all->k" or "row"), column);
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local wide, tiles = scale.k, scale.order == "tiles"
//$ local more = scale.global and ", global" or ""
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
/* Blocks of $(wide) x $(wide) values: the rowwise and the columnwise tensor have the same
   scales. */
//$ local shares = wide > 32 and "struct shared *shared, " or ""
FN void find_factors($(shares)const struct coord *p, const struct group *g,
                     const struct tile *t, const struct shape *all,
                     const struct copy *row, const struct copy *column, const packed *v,
                     struct factors *f)
{
    const int feature = t->column + 64 * p->half + 2 * p->lane;
    const int first = t->row + ROWS * p->part;
    const struct scales across = row_scales(g, all), along = column_scales(g, all);
//$ if scale.global then
    const unsigned int *amax = row->data ? row->amax : column->amax; /* both are the same */
    const float global = global_factor(amax, row->data ? row->global : 0, g, t);

    global_factor(amax, column->data ? column->global : 0, g, t);
//$ end

//$ if wide > 32 then
    {
        const magnitudes m = largest_of<ROWS>(v);
        const float most = reduce_lanes<LANES>(larger(low_of(m), high_of(m)));
        if (p->lane == 0)
            shared->column_most[p->part][p->half] = most;
    }
    __syncthreads();
//$ end
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        const int block = (first + i * (ROWS / PARTS)) / DOWN;
        $(sf_type) sf;
//$ if wide > 32 then
        const int part = p->part / $(wide // 32) * $(wide // 32);
        const int half = $(wide == 128 and "0" or "p->half");
        const int stores = $(tiles and "" or "p->lane == 0 && ")p->part == part && p->half == half;
        float most = 0;
//$ for i = 0, wide // 32 - 1 do
//$ for j = 0, wide // 64 - 1 do
        most = larger(most, shared->column_most[part + $(i)][half + $(j)]);
//$ end
//$ end
//$ else
        const magnitudes m = largest_of<ROWS / PARTS>(v + i * (ROWS / PARTS) * LINE);
        const float most = reduce_lanes<LANES>(larger(low_of(m), high_of(m)));
//$ if not tiles then
        const int stores = p->lane % LANES == 0;
//$ end
//$ end
        f->row[i] = f->column[0][i] = f->column[1][i] = scale_of(most$(more), &sf);
//$ if tiles then
//$ local stores = wide > 32 and "stores && " or ""
        /* Tiles have a scale for each line of a block. */
        for (int line = p->lane % LANES; $(stores)line < DOWN; line += LANES) {
            if (row->data)
                store_sf(row->sf, &across, block * DOWN + line, feature / ACROSS, (sf_element)sf);
            if (column->data)
                store_sf(column->sf, &along, feature / DOWN * DOWN + line, block, (sf_element)sf);
        }
//$ else
        if (stores && row->data)
            store_sf(row->sf, &across, block, feature / ACROSS, (sf_element)sf);
        if (stores && column->data)
            store_sf(column->sf, &along, feature / DOWN, block, (sf_element)sf);
//$ end
    }
}

//$ local wide = scale.k
//$ local more = scale.global and ", global" or ""
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
//$ local by_row = scale.span == "row" or (scale.span == "block" and scale.rows == 1)
/* What values are multiplied by. Those of rows lie in shared memory where rows differ. */
struct factors {
    float row[PARTS];       /* where they do not */
    float column[2][PARTS]; /* of each feature's blocks of rows */
};

//$ if scale.global then
/* What a group's second scale gives the rule of blocks; it is stored by the group's first tile. */
FN float global_factor(const unsigned int *amax, float *global, const struct group *g,
                       const struct tile *t)
{
    float stored;
    const float factor = global_of(float_of(amax[g->number]), &stored);

    if (global && t->row == 0 && t->column == 0 && threadIdx.x == 0)
        global[g->number] = stored;
    return factor;
}

//$ end
//$ if scale.span ~= "block" then
/* The factor of line or group `at`; what is stored with it comes with its first tile. */
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

FN void find_factors(struct shared *shared, const struct place *p, const struct group *g,
                     const struct tile *t, const struct shape *all, const struct copy *row,
                     const struct copy *column, const held v[ROWS], struct factors *f)
{
//$ if scale.span == "row" then
    const int line = t->row + ROWS * p->part + p->lane;
    const int feature = t->column + 64 * p->half + 2 * p->lane;
//$ local first = of == "w" and "(long long)g->number * all->m" or "(long long)g->start"

    if (row->data) {
        shared->row_factor[p->warp][0][p->lane] =
            line < g->length
                ? given_factor(row, $(first) + line, t->column == 0 && p->half == 0) : 0;
        __syncwarp();
    }
#pragma unroll
    for (int second = 0; second < 2; second++) {
        f->column[second][0] = 0;
        if (column->data && feature + second < all->k)
            f->column[second][0] =
                given_factor(column, (long long)g->number * all->k + feature + second,
                             t->row == 0 && p->part == 0);
    }
//$ else
//$ if scale.span == "tensor" then
    const int is_first = g->first + t->row + t->column + (int)threadIdx.x == 0;
//$ else
    const int is_first = t->row + t->column + (int)threadIdx.x == 0;
//$ end
//$ local at = scale.span == "group" and "g->number" or "0"

    f->row[0] = row->data ? given_factor(row, $(at), is_first) : 0;
    f->column[0][0] = f->column[1][0] =
        column->data ? given_factor(column, $(at), is_first) : 0;
//$ end
}
//$ elseif scale.rows > 1 then
/* Blocks of $(wide) x $(wide) values: both copies have the same scales. */
FN void find_factors(struct shared *shared, const struct place *p, const struct group *g,
                     const struct tile *t, const struct shape *all, const struct copy *row,
                     const struct copy *column, const held v[ROWS], struct factors *f)
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
        const int stores = p->lane == 0 && p->part == part && p->half == half;
        float most = 0;
//$ for i = 0, wide // 32 - 1 do
//$ for j = 0, wide // 64 - 1 do
        most = larger(most, shared->column_most[part + $(i)][half + $(j)]);
//$ end
//$ end
//$ else
        const magnitudes m = largest_of<ROWS / PARTS>(v + i * (ROWS / PARTS));
        const float most = reduce_lanes<LANES>(larger(low_of(m), high_of(m)));
        const int stores = p->lane % LANES == 0;
//$ end
        f->row[i] = f->column[0][i] = f->column[1][i] = scale_of(most$(more), &sf);
        if (stores && row->data)
            store_sf(row->sf, &across, block, feature / ACROSS, (sf_element)sf);
        if (stores && column->data)
            store_sf(column->sf, &along, feature / DOWN, block, (sf_element)sf);
    }
}
//$ else
/* Blocks of one line: 1 x $(wide) values of the row copy. A lane finds the factors of LEFT rows. */
FN void find_row_factors(struct shared *shared, const struct place *p, const struct group *g,
                         const struct tile *t, const struct shape *all, const struct copy *copy,
                         const float most[LEFT])
{
    const struct scales s = row_scales(g, all);
    const int j = (t->column + 64 * p->half + 2 * p->lane) / ACROSS;
//$ if scale.global then
    const float global = global_factor(copy->amax, copy->global, g, t);
//$ end

#pragma unroll
    for (int i = 0; i < LEFT; i++)
        shared->row_factor[p->warp][p->lane / LANES][row_left<LANES>(p->lane, i)] = most[i];
#pragma unroll 1
    for (int i = 0; i < LEFT; i++) { /* one rule after the other: registers are scarce */
        const int line = row_left<LANES>(p->lane, i);
        float *const factor = &shared->row_factor[p->warp][p->lane / LANES][line];
        $(sf_type) sf;
        float all_most = *factor;
//$ if wide == 128 then
        all_most = larger(all_most, shared->row_most[1 - p->half][ROWS * p->part + line]);
//$ end
        *factor = scale_of(all_most$(more), &sf);
        if ($(wide == 128 and "p->half == 0" or "1"))
            store_sf(copy->sf, &s, t->row + ROWS * p->part + line, j, (sf_element)sf);
    }
    __syncwarp();
}

/* $(wide) x 1 values of the column copy. */
FN void find_column_factors(struct shared *shared, const struct place *p, const struct group *g,
                            const struct tile *t, const struct shape *all,
                            const struct copy *copy, const float most[2][PARTS],
                            struct factors *f)
{
    const struct scales s = column_scales(g, all);
//$ if scale.global then
    const float global = global_factor(copy->amax, copy->global, g, t);
//$ end

#pragma unroll
    for (int second = 0; second < 2; second++) {
        const int line = 64 * p->half + 2 * p->lane + second;
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            const int row = t->row + ROWS * p->part + i * (ROWS / PARTS);
            float all_most = most[second][i];
            $(sf_type) sf;
//$ if wide > 32 then
            const int part = p->part / $(wide // 32) * $(wide // 32);
//$ for i = 0, wide // 32 - 1 do
            all_most = larger(all_most, shared->column_most[part + $(i)][line]);
//$ end
//$ end
            f->column[second][i] = scale_of(all_most$(more), &sf);
            if ($(wide > 32 and "row % ACROSS == 0" or "1"))
                store_sf(copy->sf, &s, t->column + line, row / ACROSS, (sf_element)sf);
        }
    }
}

/* The largest magnitudes of the columns, as the column copy takes them. */
FN void find_columns(const held v[ROWS], float most[2][PARTS])
{
//$ if scale.hadamard then
#pragma unroll
    for (int second = 0; second < 2; second++) {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            most[second][i] = largest_turned<ROWS / PARTS>(v + i * (ROWS / PARTS), second);
    }
//$ else
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        const magnitudes m = largest_of<ROWS / PARTS>(v + i * (ROWS / PARTS));
        most[0][i] = low_of(m);
        most[1][i] = high_of(m);
    }
//$ end
}

FN void find_factors(struct shared *shared, const struct place *p, const struct group *g,
                     const struct tile *t, const struct shape *all, const struct copy *row,
                     const struct copy *column, const held v[ROWS], struct factors *f)
{
    float of_rows[LEFT], of_columns[2][PARTS];

    if (row->data)
        largest_of_rows<LANES>(v, of_rows, p->lane);
    if (column->data)
        find_columns(v, of_columns);
//$ if wide > 32 then
//$ if wide == 128 then
    if (row->data)
        shared->row_most[p->half][ROWS * p->part + row_left<LANES>(p->lane, 0)] = of_rows[0];
//$ end
    if (column->data) {
        shared->column_most[p->part][64 * p->half + 2 * p->lane] = of_columns[0][0];
        shared->column_most[p->part][64 * p->half + 2 * p->lane + 1] = of_columns[1][0];
    }
    __syncthreads();
//$ end
    if (row->data)
        find_row_factors(shared, p, g, t, all, row, of_rows);
    if (column->data)
        find_column_factors(shared, p, g, t, all, column, of_columns, f);
}
//$ end

//$ if of ~= "w" then
/* The sums of all 32 rows each of a group, in order, for the 128 features of a tile. */
FN void sum_group(const struct group *g, int feature, int k, const float *partials, float *dbias)
{
    const int parts = ceil_div(g->length, ROWS);
    const float *part = partials + (long long)g->first * (TILE_M / ROWS) * k + feature;
    float sum = 0;

    if (threadIdx.x >= TILE_N || feature >= k)
        return;
#pragma unroll 1
    for (int i = 0; i < parts; i += 16) {
        float some[16];
#pragma unroll
        for (int j = 0; j < 16; j++)
            some[j] = i + j < parts ? __ldcg(part + (long long)(i + j) * k) : 0;
#pragma unroll
        for (int j = 0; j < 16; j++)
            if (i + j < parts)
                sum = i + j == 0 ? some[0] : add_rn(sum, some[j]);
    }
    dbias[(long long)g->number * k + feature] = sum;
}

/* A tile's part of dbias. Whoever does a group's last tile of these features sums them up. */
FN void sum_tile(struct shared *shared, const struct place *p, const struct group *g,
                 const struct tile *t, int k, const float sum[2], float *dbias, float *partials,
                 unsigned int *counters)
{
    const int row = t->row + ROWS * p->part, feature = t->column + 64 * p->half + 2 * p->lane;
    const long long part = (long long)g->first * (TILE_M / ROWS) + row / ROWS;

    if (row < g->length && feature < k) {
        partials[part * k + feature] = sum[0];
        if (feature + 1 < k)
            partials[part * k + feature + 1] = sum[1];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned int *counter =
            counters + g->number * ceil_div(k, TILE_N) + t->column / TILE_N;
        __threadfence(); /* of all threads' sums, behind the barrier; by each it would cost more */
        shared->is_last = atomicAdd(counter, 1) == (unsigned int)ceil_div(g->length, TILE_M) - 1;
    }
    __syncthreads();
    if (shared->is_last) {
        __threadfence();
        sum_group(g, t->column + (int)threadIdx.x, k, partials, dbias);
    }
}

/* The scales and sums of a group without rows, as of zeros. */
FN void do_nothing(int group, int k, const struct copy *row, const struct copy *column,
                   float *dbias)
{
//$ if scale.global then
    if (row->data && threadIdx.x == 0)
        global_of(0, &row->global[group]);
    if (column->data && threadIdx.x == 0)
        global_of(0, &column->global[group]);
//$ elseif scale.span == "group" then
    if (row->data && threadIdx.x == 0)
        scale_of(0, &row->sf[group]);
    if (column->data && threadIdx.x == 0)
        scale_of(0, &column->sf[group]);
//$ elseif scale.span == "row" then
    for (int f = threadIdx.x; f < k && column->data; f += THREADS)
        scale_of(0, &column->sf[(long long)group * k + f]);
//$ end
    for (int f = threadIdx.x; f < k && dbias; f += THREADS)
        dbias[(long long)group * k + f] = 0;
}

/* All of them, one for each CTA at a time. */
FN void do_empty(const void *first_dims, const void *offsets, int bytes, const struct shape *all,
                 const struct copy *row, const struct copy *column, float *dbias)
{
    for (int i = blockIdx.x; i < all->groups; i += gridDim.x) {
        const unsigned int start = offsets ? cut_to_rows(size_at(offsets, bytes, i), all->m) : 0;
        if (cut_to_rows(group_length(first_dims, offsets, bytes, i), all->m - start) == 0)
            do_nothing(i, all->k, row, column, dbias);
    }
}
//$ end

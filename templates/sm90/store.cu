/* The slabs of one math warp, filled in turns. */
struct slabs {
    unsigned int first;
    int turn;
//$ if addend == "fetch" then
    unsigned int arrived; /* a barrier for each: C is there */
//$ end
};

//$ local to_d = addend == "reduce" and "add_box" or "store_box"
/* One warp's slab of 16 rows to its place in D; rows past the group are dropped. */
DEVICE void store_slab(const struct maps *maps, unsigned int slab, const struct tile *t, int x,
                       int row, int rows)
{
//$ if ragged == "m" then
    /* Where the group ends among the 16 rows, the ragged map cuts them. */
    if (row + 16 <= rows)
        $(to_d)_2d(maps->d, slab, x, (int)t->start + row);
    else
        $(to_d)_4d(maps->d_ragged, slab, x, RAGGED_ROW - rows + row, RAGGED_ROW,
                     (int)t->start + rows);
//$ elseif ragged == "k" then
    const struct reach r = reach_from(maps->base, t->matrix);
    if (t->matrix)
        $(to_d)_4d(maps->d_pointer, slab, x, row, r.near, r.far);
    else
        $(to_d)_3d(maps->d, slab, x, row, t->group);
//$ else
    $(to_d)_3d(maps->d, slab, x, row, t->group);
//$ end
}

//$ if addend == "read" then
/* The first of C that the tile needs, on its way while the tile is multiplied. */
DEVICE void read_ahead(struct raw_slab c[AHEAD + 1], const struct scale *scale,
                       const struct tile *t, int row, int rows, int lane)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        read_slab(&c[i], scale, row + i / TILE_SLABS * 64,
                  t->column + i % TILE_SLABS * SLAB_COLUMNS, rows, lane);
}

//$ end
//$ if addend == "fetch" then
//$ include "sm90/fetch.cu"
//$ else
/* One warp stores its rows of a tile, a slab at a time. */
//$ if addend ~= "read" then
DEVICE void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                       const struct maps *maps, int row, int rows, int lane)
{
//$ else
DEVICE void store_tile(float sum[SUMS], struct slabs *slabs,
                       const struct tile *t, const struct maps *maps, const struct scale *scale,
                       struct raw_slab c[AHEAD + 1], int row, int rows, int lane)
{
//$ end
#pragma unroll
    for (int i = 0; i < ROWS / 64 * TILE_SLABS; i++) {
        const int y = row + i / TILE_SLABS * 64, x = t->column + i % TILE_SLABS * SLAB_COLUMNS;
        const unsigned int slab = slabs->first + slabs->turn * SLAB_BYTES;
        float *part = sum + i * (SLAB_COLUMNS / 2);

        if (y >= rows)
            break;
//$ if addend == "read" then
        if (i + AHEAD < ROWS / 64 * TILE_SLABS)
            read_slab(&c[(i + AHEAD) % (AHEAD + 1)], scale, row + (i + AHEAD) / TILE_SLABS * 64,
                      t->column + (i + AHEAD) % TILE_SLABS * SLAB_COLUMNS, rows, lane);
        scale_slab(part, &c[i % (AHEAD + 1)], scale);
//$ end
        slabs->turn = (slabs->turn + 1) % SLABS;
        if (lane == 0)
            store_wait(SLABS - 1);
        __syncwarp();
        fill_slab(slab, part, lane);
        copy_engine_fence();
        __syncwarp();
        if (lane == 0)
            store_slab(maps, slab, t, x, y, rows);
    }
}
//$ end

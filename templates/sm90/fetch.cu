//$ -- SPDX-License-Identifier: Apache-2.0
/*
** fp32 accumulation by the copy engine: it loads a slab of C, which is D, into shared memory, the
** warp adds its sums in place, and the slab goes back by a plain store.
**
** The slabs of a tile take turns in the warp's SLABS, on and on from tile to tile; a barrier next
** to each tells that C is there, by a parity that flips with every round. Lane 0 issues fetches and
** stores: only it can wait until a store has read its slab, after which both the store and the
** fetch that follows belong to the copy engine and need no fence between them.
**
** Fetches and stores must agree, or a parity would be off for good: both depend only on the row. A
** slab past the last column is zeros when fetched and dropped when stored.
*/

/* Slab i of a tile into the place of `slot`, which no store reads any more. Called by one lane. */
FN void fetch_slab(const struct slabs *slabs, unsigned int slot, const struct maps *maps,
                   const struct tile *t, int i, int row, int rows)
{
    const struct reach r = reach_from(maps->base, t->matrix);
    const int y = row + i / ROW_SLABS * 64, x = t->column + i % ROW_SLABS * SLAB_COLUMNS;
    const unsigned int slab = slabs->first + slot % SLABS * SLAB_BYTES;
    const unsigned int arrived = slabs->arrived + slot % SLABS * 8;

    if (y >= rows)
        return;
    barrier_expect(arrived, SLAB_BYTES); /* all of them, even where the box leaves the tensor */
    if (t->matrix)
        load_box_4d(slab, maps->d_pointer, arrived, x, y, r.near, r.far);
    else
        load_box_3d(slab, maps->d, arrived, x, y, t->group);
}

/* The first slabs of C that the tile needs, loaded while the tile is multiplied. */
FN void fetch_ahead(const struct slabs *slabs, const struct maps *maps, const struct tile *t,
                    int row, int rows, int lane)
{
    if (lane != 0)
        return;
    store_wait(0); /* those of the tile before */
#pragma unroll
    for (int i = 0; i < SLABS && i < ROWS / 64 * ROW_SLABS; i++)
        fetch_slab(slabs, slabs->slot + i, maps, t, i, row, rows);
}

/*
** One warp adds its rows of a tile to C and stores them, a slab at a time. A slab is fetched into
** again one store later than it could be, so that the wait is never for the newest store.
*/
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, int row, int rows, int lane)
{
#pragma unroll
    for (int i = 0; i < ROWS / 64 * ROW_SLABS; i++) {
        const int y = row + i / ROW_SLABS * 64, x = t->column + i % ROW_SLABS * SLAB_COLUMNS;
        const unsigned int slot = slabs->slot;
        const int next = i - 1 + SLABS;
        const unsigned int slab = slabs->first + slot % SLABS * SLAB_BYTES;

        if (y >= rows)
            break;
        slabs->slot = (slot + 1) % (2 * SLABS);
        barrier_wait(slabs->arrived + slot % SLABS * 8, slot / SLABS);
        add_to_slab(slab, sum + i * (SLAB_COLUMNS / 2), lane);
        copy_engine_fence();
        __syncwarp();
        if (lane == 0) {
            store_slab(maps, slab, t, x, y$(ragged == "m" and ", rows" or ""));
            if (i > 0 && next < ROWS / 64 * ROW_SLABS) {
                store_wait(1);
                fetch_slab(slabs, slot - 1 + SLABS, maps, t, next, row, rows);
            }
        }
    }
}

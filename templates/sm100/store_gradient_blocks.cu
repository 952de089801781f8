//$ -- SPDX-License-Identifier: Apache-2.0
//$ -- a block is two chunks of one operand, or one of both
//$ local runs = operands == "runs"
//$ local width = operands == "halves" and ", f->columns" or ""
/*
** One warp's rows of a tile, whose sums begin at `sums`. D stays in the slabs, a block of 128 x 128
** for each operand, until its codes are put into the first of the block's.
*/
FN void store_tile(unsigned int sums, struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows, int lane)
{
    const struct follow *const f = s->of;
    const int is_row[2] = { row + lane / 4 < rows, row + lane / 4 + 8 < rows };
    const int is_pair = (row & -PAIR_ROWS) < rows;
    const unsigned int begin = slabs->slot;

#pragma unroll 1
    for (int i = 0; i < CHUNKS && is_pair; i++) {
        const struct chunk c = { row, t->column + i * SLAB_COLUMNS };

        fill_slabs(sums + i * SLAB_COLUMNS, slabs, begin + i * OPERANDS, t, s, &c, rows, lane);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < OPERANDS; i++) {
        unsigned int slab[2];
        struct packed packed;

#pragma unroll
        for (int j = 0; j < 2; j++)
            slab[j] = slabs->first +
                      (begin + $(runs and "2 * i + j" or "j * OPERANDS + i")) % SLABS * SLAB_BYTES;
        load_packed(&packed, slab, is_row, lane);
        store_copies(&packed, slabs, t, maps, &f->copies,
//$ local at = runs and "t->column + i * SLAB_COLUMNS, 0" or "t->column, i" .. width
                     column_of($(at)), slab[0], row, rows, lane);
    }
    if (is_pair)
        slabs->slot = (begin + CHUNKS * OPERANDS) % (2 * SLABS);
}

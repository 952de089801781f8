//$ -- SPDX-License-Identifier: Apache-2.0
//$ local chunk = operands == "halves" and "" or "c, "
//$ local width = operands == "halves" and ", f->columns" or ""
//$ local half = a.bits == 4 and " / 2" or "" -- bytes of as many codes
//$ if a.scale.k == 32 then
/*
** D in a slab, 16 rows of RESULTS columns, is a block of the quantized tensors, of which another
** warp has 16 rows more. A block's codes are half of a row of $(16 * a.bits) bytes, part 0 or 1.
*/

/*
** The factors of a block's columns go to `columns`, after each warp has told the other one its
** largest magnitudes of them; the first of both stores their scales. `row` is both warps' first.
*/
FN void share_factors(const struct packed *packed, unsigned int maxima, unsigned int columns,
                      const struct tile *t, const struct copies *c, int x, int row, int half,
                      int lane)
{
    const struct group g = { t->group, t->start, (int)t->length, (int)t->runs };
    const struct scales s = column_scales(&g, &c->all);
    const int pair = (lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2) * 4 + lane % 4;
    unsigned int most = largest_of_columns(packed, lane);

    store_shared_word(maxima + (half * 32 + lane) * 4, most);
    meet();
    most = larger_pair(most, load_shared_word(maxima + ((1 - half) * 32 + lane) * 4));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        unsigned int sf;
        const float all = fmaxf(i ? hi_of(most) : lo_of(most), 0);

        store_shared_word(columns + (2 * pair + i) * 4, bits_of(scale_of(all, &sf)));
        if (half == 0)
            store_sf(c->column_sf, &s, x + 2 * pair + i, row / BLOCK, (sf_element)sf);
    }
}

/* The columnwise tensor's part of it. Two warps read each other's values before they meet again. */
FN void store_columns(const struct packed *packed, const struct tile *t, const struct copies *c,
                      int x, int row, int lane)
{
    const int half = threadIdx.x / 128 - 1, strip = threadIdx.x / 32 % 4;
    const unsigned int columns = c->memory->columns + (2 * strip + half) * RESULTS * 4;
    const unsigned int turned = c->memory->turned + strip * RESULTS * LINE_BYTES;
    const long long line = x + half * (RESULTS / 2);

    share_factors(packed, c->memory->maxima + strip * 64 * 4, columns, t, c, x, row, half, lane);
    __syncwarp();
    turn_columns(packed, turned, columns, half, lane);
    meet();
    store_lines(turned + half * (RESULTS / 2) * LINE_BYTES,
                c->column + (line * c->column_stride + (long long)t->runs * 128 + row)$(half),
                c->column_stride$(half));
}

//$ end
/* One chunk, whose sums begin at `sums`: P becomes D in the slabs, from their place `slot` on. */
FN void fill_slabs(unsigned int sums, const struct slabs *slabs, unsigned int slot,
                   const struct tile *t, const struct finish *s, const struct chunk *c, int rows,
                   int lane)
{
    const struct follow *const f = s->of;
    unsigned int slab[OPERANDS];
    float total[2] = { 0, 0 };

#pragma unroll
    for (int j = 0; j < OPERANDS; j++) {
        slab[j] = slabs->first + (slot + j) % SLABS * SLAB_BYTES;
        barrier_wait(slabs->arrived + (slot + j) % SLABS * 8, (slot + j) / SLABS % 2);
    }
#pragma unroll 1
    for (int i = 0; i < FRAGMENTS; i += PART) {
        float sum[4 * PART];

        tensor_load(sum, sums + 8 * i);
        tensor_wait(sum, 4 * PART);
        fill_chunk(slab, i, sum, s, $(chunk)s->probability, total, lane);
    }
    if (f->row_partials)
        keep_rows(total, s, t, c, rows, lane);
    if (f->partials) {
        meet();
        keep_columns(slab, f, t, c, rows);
        meet(); /* codes take the slabs */
    }
}

//$ if a.scale.k == 128 then
//$ include "sm100/store_gradient_blocks.cu"
//$ else
/*
** One warp's rows of a tile, whose sums begin at `sums`. Codes are put where D was: of the tile's
** first chunk, or of their own if a chunk makes both parts.
*/
FN void store_tile(unsigned int sums, struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows, int lane)
{
    const struct follow *const f = s->of;
    const int is_pair = (row & -PAIR_ROWS) < rows;
    const unsigned int begin = slabs->slot;

#pragma unroll 1
    for (int i = 0; i < CHUNKS; i++) {
        const struct chunk c = { row, t->column + i * SLAB_COLUMNS };
        const unsigned int slot = begin + i * OPERANDS;

        if (is_pair)
            fill_slabs(sums + i * SLAB_COLUMNS, slabs, slot, t, s, &c, rows, lane);
        __syncwarp();
#pragma unroll 1
        for (int j = 0; j < OPERANDS; j++) {
//$ if operands == "runs" then
            const unsigned int to = slabs->first + slot % SLABS * SLAB_BYTES;
            const int part = j;
//$ else
            const unsigned int to = slabs->first + (begin + j) % SLABS * SLAB_BYTES;
            const int part = i % 2;
//$ end
            const unsigned int from = slabs->first + (slot + j) % SLABS * SLAB_BYTES;
            const int is_row[2] = { row + lane / 4 < rows, row + lane / 4 + 8 < rows };
            const int x = column_of(c.column, j$(width));
            struct packed packed;
            float factor[2][BLOCKS];

            load_packed(&packed, &from, is_row, lane);
            find_row_factors(factor, &packed, t, &f->copies, x, row, lane);
            put_codes(&packed, factor, to, part, lane);
            if (lane == 0 && part == 1 && row < rows)
                store_slab(maps, to, t, (x - RESULTS)$(half), row, rows);
            if (f->copies.column)
                store_columns(&packed, t, &f->copies, x, row & -BLOCK, lane);
        }
    }
    if (is_pair)
        slabs->slot = (begin + CHUNKS * OPERANDS) % (2 * SLABS);
}
//$ end

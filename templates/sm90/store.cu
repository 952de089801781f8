//$ -- SPDX-License-Identifier: Apache-2.0
/* The slabs of one math $(store == "warps" and "warp, filled in turns" or "warpgroup"). */
//$ if params.scatter then
struct slabs {
    unsigned int first;
    int slot;
    char *d;
    long long pitch; /* bytes from one row of D to the next */
    const int *scatter;
    const unsigned long long *addresses;
    int rows, columns; /* of all of D */
};

/* Rows of D that a lane writes 16 bytes of: every fourth one of 16. */
struct rows {
    char *to[4]; /* null: none */
};

/* Row `row` of all groups in D, by its number there or the address that this has. */
FN char *row_of(const struct slabs *s, unsigned int row)
{
    const int number = s->scatter ? __ldg(s->scatter + row) : (int)row;

    if (number < 0 || number >= s->rows)
        return 0;
    return s->addresses ? (char *)__ldg(s->addresses + number) : s->d + number * s->pitch;
}

FN void find_rows(struct rows *r, const struct slabs *s, const struct tile *t, int row, int rows,
                  int lane)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int y = row + i * 4 + lane / 8;

        r->to[i] = y < rows ? row_of(s, t->start + y) : 0;
    }
}

/*
** One warp's sums through a slab to rows of D anywhere, 128 bytes of each. The slab that it fills
** was read before the warp last met here.
*/
FN void put_slab(struct slabs *s, const struct rows *r, const float *part, int x, int lane)
{
    const unsigned int slab = s->first + s->slot * SLAB_BYTES;
    const int column = x + lane % 8 * 8;

    s->slot = (s->slot + 1) % SLABS;
    fill_slab(slab, part, lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = i * 4 + lane / 8;
        unsigned int word[4];

        load_shared_x4(slab + row * 128 + (lane % 8 ^ row % 8) * 16, word);
        if (r->to[i] && column < s->columns)
            *(uint4 *)(r->to[i] + column * 2) = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

/* One warp stores its rows of a tile, a slab at a time. */
FN void store_tile(float sum[SUMS], struct slabs *s, const struct tile *t, const struct maps *maps,
                   int row, int rows, int lane)
{
    struct rows r;

    (void)maps;
#pragma unroll
    for (int i = 0; i < ROWS / 64 * ROW_SLABS; i++) {
        const int y = row + i / ROW_SLABS * 64;

        if (y >= rows)
            break;
        if (i % ROW_SLABS == 0)
            find_rows(&r, s, t, y, rows, lane);
        put_slab(s, &r, sum + i * (SLAB_COLUMNS / 2), t->column + i % ROW_SLABS * SLAB_COLUMNS,
                 lane);
    }
}
//$ else
struct slabs {
    unsigned int first;
    int slot;
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ if (epilogue == "copies" or epilogue == "gradient_copies") and a.scale.k == 128 then
    unsigned int side; /* of MAXIMA_BYTES: the half that this tile has */
//$ end
//$ if addend == "fetch" then
//$ local brought = back and "P" or "C"
    unsigned int arrived; /* a barrier for each: $(brought) has arrived */
//$ end
};

//$ local to_d = addend == "reduce" and "add_box" or "store_box"
//$ local cut, cut_by = "", ""
//$ if ragged == "m" then cut, cut_by = ", rows", ", int rows" end
/* A slab to its position in D; rows past the group are dropped. */
FN void store_slab(const struct maps *maps, unsigned int slab, const struct tile *t, int x,
                   int row$(cut_by))
{
//$ if ragged == "m" then
    /* If the group ends among its rows, the ragged map cuts them. */
    if (row + SLAB_ROWS <= rows)
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

/* The first of C that the tile needs, loaded while the tile is multiplied. */
FN void read_ahead(struct raw_slab c[AHEAD + 1], const struct scale *scale,
                   const struct tile *t, int row, int rows, int lane)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
//$ if turned then
        read_slab(&c[i], scale, row + i * SLAB_ROWS,
                  t->column + threadIdx.x / 32 % 4 * SLAB_COLUMNS, rows, lane);
//$ else
        read_slab(&c[i], scale, row + i / ROW_SLABS * 64,
                  t->column + i % ROW_SLABS * SLAB_COLUMNS, rows, lane);
//$ end
}

//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local pairs = follows and not turned and operands == "runs" and interleave == 1
//$ if pairs then
//$ include "sm90/store_alternating.cu"

//$ end
//$ local choice = pairs and epilogue == "activate" and ", int is_result" or ""
/* One warp's sums through a slab to D. */
FN void put_slab(struct slabs *slabs, const struct maps *maps, const float *part,
                 const struct tile *t, int x, int y$(cut_by), int lane$(choice))
{
    const unsigned int slab = slabs->first + slabs->slot * SLAB_BYTES;

    slabs->slot = (slabs->slot + 1) % SLABS;
    if (lane == 0)
        store_wait(SLABS - 1);
    __syncwarp();
//$ if choice ~= "" then
    if (is_result)
        fill_results(slab, part, lane);
    else
//$ end
    $(choice ~= "" and "    " or "")fill_slab(slab, part, lane);
    copy_engine_fence();
    __syncwarp();
    if (lane == 0)
        store_slab(maps, slab, t, x, y$(cut));
}

//$ if follows and turned then
//$ include "sm90/activate_turned.cu"
//$ elseif epilogue == "activate" or epilogue == "copies" then
//$ include "sm90/activate.cu"
//$ elseif back then
//$ include "sm90/gradient.cu"
//$ elseif addend == "fetch" then
//$ include "sm90/fetch.cu"
//$ elseif store == "warpgroup" then
/*
** A warpgroup stores its part of a tile, all slabs at once, each in one box of 64 rows: those of
** the tile before are long gone, and few boxes do not hold up the warps that issue them.
*/
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, int row, int rows, int lane)
{
    const int warp = threadIdx.x / 32 % 4, barrier = threadIdx.x / 128 + 2;

    row -= warp * 16;
    if (lane == 0)
        store_wait(0);
    named_wait(barrier, 128);
#pragma unroll
    for (int i = 0; i < SLABS; i++)
        fill_slab(slabs->first + i * SLAB_BYTES + warp * 16 * 128, sum + i * (SLAB_COLUMNS / 2),
                  lane);
    copy_engine_fence();
    named_wait(barrier, 128);
    for (int i = warp; i < SLABS; i += 4)
        if (lane == 0 && row + i / ROW_SLABS * 64 < rows)
            store_slab(maps, slabs->first + i * SLAB_BYTES, t,
                       t->column + i % ROW_SLABS * SLAB_COLUMNS, row + i / ROW_SLABS * 64$(cut));
}
//$ else
//$ if turned then
/* One warp stores its columns of a tile, 16 rows at a time. */
//$ local with_c = addend == "read" and " const struct scale *scale,\n" ..
//$                "                   struct raw_slab c[AHEAD + 1]," or ""
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps,$(with_c) int row, int rows, int lane)
{
    const int x = t->column + threadIdx.x / 32 % 4 * SLAB_COLUMNS;

#pragma unroll
    for (int i = 0; i < ROWS / SLAB_ROWS; i++)
//$ if addend == "read" then
        if (row + i * SLAB_ROWS < rows) {
            float *part = sum + i * (SLAB_ROWS / 2);

            if (i + AHEAD < ROWS / SLAB_ROWS)
                read_slab(&c[(i + AHEAD) % (AHEAD + 1)], scale, row + (i + AHEAD) * SLAB_ROWS, x,
                          rows, lane);
            scale_slab(part, &c[i % (AHEAD + 1)]$(epilogue == "scale" and ", scale" or ""));
            put_slab(slabs, maps, part, t, x, row + i * SLAB_ROWS$(cut), lane);
        }
//$ else
        if (row + i * SLAB_ROWS < rows)
            put_slab(slabs, maps, sum + i * (SLAB_ROWS / 2), t, x, row + i * SLAB_ROWS$(cut), lane);
//$ end
}
//$ else
/* One warp stores its rows of a tile, a slab at a time. */
//$ if addend ~= "read" then
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, int row, int rows, int lane)
{
//$ else
FN void store_tile(float sum[SUMS], struct slabs *slabs,
                   const struct tile *t, const struct maps *maps, const struct scale *scale,
                   struct raw_slab c[AHEAD + 1], int row, int rows, int lane)
{
//$ end
#pragma unroll
    for (int i = 0; i < ROWS / 64 * ROW_SLABS; i++) {
        const int y = row + i / ROW_SLABS * 64, x = t->column + i % ROW_SLABS * SLAB_COLUMNS;
        float *part = sum + i * (SLAB_COLUMNS / 2);

        if (y >= rows)
            break;
//$ if addend == "read" then
        if (i + AHEAD < ROWS / 64 * ROW_SLABS)
            read_slab(&c[(i + AHEAD) % (AHEAD + 1)], scale, row + (i + AHEAD) / ROW_SLABS * 64,
                      t->column + (i + AHEAD) % ROW_SLABS * SLAB_COLUMNS, rows, lane);
        scale_slab(part, &c[i % (AHEAD + 1)]$(epilogue == "scale" and ", scale" or ""));
//$ end
        put_slab(slabs, maps, part, t, x, y$(cut), lane);
    }
}
//$ end
//$ end
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Scales of blocks, however they are stored, to tiles of 128 rows x 4 next to a stage: SCALERS
** warps fetch them, a line and a spot of each tile for each thread, from the first row on. Rows
** after the group's, and blocks after its k, have scales of 0 there: the padding of tiles and the
** scales of other groups are not read.
*/
struct stored {
//$ for _, p in ipairs(params) do
//$   if p.kind == "sf" then
    $(p.member_declaration);
//$   end
//$ end
    int k; /* of a rowwise tensor */
};

/* The scales of a thread's row. */
struct scale_row {
    const void *sf;
    struct scale_place place;
    long long row; /* of the group */
    int blocks;    /* with a scale */
};

FN struct scale_group group_of(const struct stored *s, const struct tile *t)
{
//$ local runs = ragged == "k" and "t->start / ALIGNED" or a_runs and "t->runs" or "0"
    const struct scale_group g = { t->group, t->start, t->length, $(runs), s->k };
    return g;
}

//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local apart = follows and operands == "halves" -- two parts of B in a tile
//$ local given = a.scale.type == "f32" and "GIVEN" or "BLOCK" -- of a stored scale
//$ local length = ragged == "k" and "(int)t->length" or "s->k"
//$ for _, x in ipairs { { "a", "m", "row", "M" }, { "b", "n", "column", "N" } } do
//$   local name, first = x[1], x[3]
/* That of row `line` of the tile's $(name), which has `rows` in the group. */
FN struct scale_row scale_row_$(name)(const struct stored *s, const struct tile *t, int line,
                                int rows)
{
    const struct scale_group g = group_of(s, t);
//$ if name == "b" and apart then
    const int row = t->column / 2 + line + (line < TILE_N / 2 ? 0 : rows / 2 - TILE_N / 2);
    const int length = $(length);
//$ else
    const int length = $(length), row = t->$(first) + line;
//$ end
    const struct scale_row r = {
        s->$(name), place_$(name)(&g, rows, s->$(name)_stride, s->$(name)_group_stride), row,
        line < TILE_$(x[4]) && row < rows ? length / $(given) + (length % $(given) > 0) : 0
    };

    return r;
}

FN void fetch_$(name)(unsigned int words[WORDS], const struct scale_row *r, int block)
{
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        words[i] = four_scales_$(name)(r->sf, &r->place, r->row, block + 4 * i, r->blocks);
}

//$ end
/* A row's words of a stage, to where its tiles have them. */
FN void put_scales(unsigned int tiles, int line, const unsigned int words[WORDS])
{
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        store_shared_word(tiles + 512 * i + line % 32 * 16 + line / 32 * 4, words[i]);
}

/* All steps of one tile. A step's scales are on their way before its stage is free. */
FN void scale_tile(const struct memory *s, struct pipeline *p, const struct tile *t,
                   const struct stored *scales, int rows, int columns, int k, int lane)
{
    const int line = threadIdx.x % 128;
//$ local lines, spots = turned and "b" or "a", turned and "a" or "b"
//$ local lengths = { a = "rows", b = "columns" }
    const struct scale_row of_line = scale_row_$(lines)(scales, t, line, $(lengths[lines]));
    struct scale_row of_spots[SPOT_TILES];

#pragma unroll
    for (int i = 0; i < SPOT_TILES; i++)
        of_spots[i] = scale_row_$(spots)(scales, t, line + 128 * i, $(lengths[spots]));
#pragma unroll 1
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int sf = s->sf + p->stage * SF_BYTES;
        unsigned int lines[WORDS], spots[SPOT_TILES][WORDS];

        fetch_$(lines)(lines, &of_line, x / $(given));
#pragma unroll
        for (int i = 0; i < SPOT_TILES; i++)
            fetch_$(spots)(spots[i], &of_spots[i], x / $(given));
        barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
        put_scales(sf, line, lines);
#pragma unroll
        for (int i = 0; i < SPOT_TILES; i++)
            put_scales(sf + 512 * WORDS * (1 + i), line, spots[i]);
        copy_engine_fence();
        __syncwarp();
        if (lane == 0)
//$ if pair then
            barrier_arrive_at(s->sf_full + p->stage * 8, 0);
//$ else
            barrier_arrive(s->sf_full + p->stage * 8);
//$ end
        pipeline_next(p, STAGES);
    }
}

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
//$ if gather ~= "none" then
    const struct gather *gather; /* from a row to its token, whose scales are A's */
//$ end
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
//$   local tokens = name == "a" and gather ~= "none" -- in place of rows
//$   local is_row = tokens and "row >= 0" or "line < TILE_" .. x[4] .. " && row < rows"
//$   local stride = tokens and "0" or "s->" .. name .. "_group_stride"
/* That of row `line` of the tile's $(name), which has `rows` in the group. */
FN struct scale_row scale_row_$(name)(const struct stored *s, const struct tile *t, int line,
                                int rows)
{
//$ if tokens then
    const struct scale_group g = { 0, 0, s->gather->tokens, 0, s->k }; /* all of them, in order */
    const int length = s->k, is_row = line < TILE_M && t->row + line < rows;
    const int row = is_row ? gather_row(s->gather, t->start + t->row + line) : -1;
//$ else
    const struct scale_group g = group_of(s, t);
//$ end
//$ if name == "b" and apart then
    const int row = t->column / 2 + line + (line < TILE_N / 2 ? 0 : rows / 2 - TILE_N / 2);
    const int length = $(length);
//$ elseif not tokens then
    const int length = $(length), row = t->$(first) + line;
//$ end
    const struct scale_row r = {
        s->$(name), place_$(name)(&g, rows, s->$(name)_stride, $(stride)), row,
        $(is_row) ? length / $(given) + (length % $(given) > 0) : 0
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

//$ local lines, spots = turned and "b" or "a", turned and "a" or "b"
//$ local lengths = { a = "rows", b = "columns" }
/* The rows of a thread, and its words of a step. */
struct scale_rows {
    struct scale_row line, spots[SPOT_TILES];
};

struct step_words {
    unsigned int line[WORDS], spots[SPOT_TILES][WORDS];
};

FN void fetch_step(struct step_words *w, const struct scale_rows *r, int step)
{
    fetch_$(lines)(w->line, &r->line, step * STEP_BLOCKS);
#pragma unroll
    for (int i = 0; i < SPOT_TILES; i++)
        fetch_$(spots)(w->spots[i], &r->spots[i], step * STEP_BLOCKS);
}

/* To a stage, once that is free. */
FN void put_step(const struct memory *s, const struct pipeline *p, int line,
                 const struct step_words *w, int lane)
{
    const unsigned int sf = s->sf + p->stage * SF_BYTES;

    barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
    put_scales(sf, line, w->line);
#pragma unroll
    for (int i = 0; i < SPOT_TILES; i++)
        put_scales(sf + 512 * WORDS * (1 + i), line, w->spots[i]);
    copy_engine_fence();
    __syncwarp();
    if (lane == 0)
//$ if pair then
        barrier_arrive_at(s->sf_full + p->stage * 8, 0);
//$ else
        barrier_arrive(s->sf_full + p->stage * 8);
//$ end
}

/* All steps of one tile. After the last one nothing is read. */
FN void scale_tile(const struct memory *s, struct pipeline *p, const struct tile *t,
                   const struct stored *scales, int rows, int columns, int k, int lane)
{
    const int line = threadIdx.x % 128, steps = k / TILE_K + (k % TILE_K > 0);
    struct step_words ahead[SF_AHEAD];
    struct scale_rows r;

    r.line = scale_row_$(lines)(scales, t, line, $(lengths[lines]));
#pragma unroll
    for (int i = 0; i < SPOT_TILES; i++)
        r.spots[i] = scale_row_$(spots)(scales, t, line + 128 * i, $(lengths[spots]));
#pragma unroll
    for (int i = 0; i < SF_AHEAD; i++)
        fetch_step(&ahead[i], &r, i);
#pragma unroll 1
    for (int step = 0; step < steps; step += SF_AHEAD) {
#pragma unroll
        for (int i = 0; i < SF_AHEAD; i++) {
            if (step + i < steps) {
                put_step(s, p, line, &ahead[i], lane);
                fetch_step(&ahead[i], &r, step + i + SF_AHEAD);
                pipeline_next(p, STAGES);
            }
        }
    }
}

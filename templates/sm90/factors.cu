//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ if factors == "bases" then
** The base of values that became f16.
//$ elseif factors == "alpha" then
** The product's factor, one for each group, or one for all.
//$ else
** The operands' scales: the factors of a product of stored values.
//$ end
//$ if factors == "group" then
** One for each group, or one for all.
//$ elseif factors == "global" then
** The second level's, one for each group; those of blocks are in the values already.
//$ elseif factors == "row" then
** One for each row of A and each row of B.
//$ elseif factors == "squares" then
//$ local come = quantize == "mainloop" and "are made" or gather ~= "none" and "threads copy"
//$              or "the copy engine brings"
** One for each row of A and TILE_K steps of k, which $(come) along with A; one for
** 128 rows of B and TILE_K steps of k, read a step ahead.
//$ elseif factors == "lines" then
** One for each row of A or B and TILE_K steps of k: the copy engine loads them along.
//$ end
*/
//$ if quantize == "mainloop" then
enum { SF_BYTES = TILE_M * 4 };

//$ elseif gather ~= "none" and factors == "squares" then
enum {
    SF_BYTES = TILE_M * 4,
//$ if whole then
    AHEAD = 32, /* steps of k that B's scales are read for at a time */
    SCALES_BYTES = 16, /* of each: see scales_ahead */
//$ end
};

//$ elseif factors == "squares" then
enum {
    SF_BOX = (TILE_M < 128 ? TILE_M : 128) + 4,
    SF_LOADED = (TILE_M + 127) / 128 * SF_BOX * 4, /* bytes: see load_sf */
    SF_BYTES = (SF_LOADED + 127) / 128 * 128, /* a copy ends up at a multiple of 128 */
//$ if whole then
    AHEAD = 32, /* steps of k that B's scales are read for at a time */
    SCALES_BYTES = 16, /* of each: see scales_ahead */
//$ end
};

//$ elseif factors == "lines" then
enum { SF_LOADED = (TILE_M + TILE_N) * 4, SF_BYTES = SF_LOADED };

//$ end
struct factors {
//$ for _, p in ipairs(params) do
//$ if p.kind == (factors == "global" and "global" or "sf") then
    $(p.member_declaration);
//$ end
//$ end
//$ if factors == "row" or factors == "squares" then
    int columns; /* of D */
//$ if factors == "row" and gather ~= "none" then
    const int *pairs; /* of the groups' rows: as in struct gather */
    int topk, tokens;
//$ end
//$ elseif factors == "alpha" then
    const float *alpha;
    int step; /* from one group's to the next's: 0 or 1 */
//$ elseif factors == "bases" then
    float unit; /* a power of two */
//$ end
};
//$ if factors == "alpha" or factors == "bases" then

struct group_scale {
    float alpha;
};

FN struct group_scale scale_of_group(const struct factors *f, const struct tile *t)
{
//$ if factors == "bases" then
    const struct group_scale s = { f->unit };

    (void)t;
//$ else
    const struct group_scale s = { __ldg(f->alpha + t->group * f->step) };

//$ end
    return s;
}

FN void scale_sums(float sum[SUMS], const struct group_scale *s)
{
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] *= s->alpha;
}
//$ elseif factors == "group" or factors == "global" then

struct group_scale {
    float a, b;
};

FN struct group_scale scale_of_group(const struct factors *f, const struct tile *t)
{
    struct group_scale s = { 1, 1 };

//$ if ragged == "k" then
    if (t->length == 0)
        return s; /* an empty group's may be unwritten */
//$ end
//$ if factors == "group" then
    s.a = __ldg(f->a + t->group * f->a_group_stride);
    s.b = __ldg(f->b + t->group * f->b_group_stride);
//$ end
//$ if factors == "global" and a.scale and a.scale.global then
    s.a = __ldg(f->a + t->group);
//$ end
//$ if factors == "global" and b.scale and b.scale.global then
    s.b = __ldg(f->b + t->group);
//$ end
    return s;
}

FN void scale_sums(float sum[SUMS], const struct group_scale *s)
{
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = $(factors == "global" and "sum[i] * (s->a * s->b)" or "sum[i] * s->a * s->b");
}
//$ elseif factors == "row" and turned then
//$ include "sm100/factors_turned.cu"
//$ elseif factors == "row" then

//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local apart = follows and operands == "halves" -- two parts of B in a tile
//$ local gathers = gather ~= "none"
//$ local a_first = a.ragged == "m" and "t->start" or "t->group * f->a_group_stride"
/* Prefetch the scales while the tile is multiplied. */
FN void factors_prefetch(const struct factors *f, const struct tile *t, int row, int rows,
                         int lane)
{
//$ if gathers then
    const float *b = f->b + t->group * f->b_group_stride;
//$ else
    const float *a = f->a + $(a_first), *b = f->b + t->group * f->b_group_stride;
//$ end
//$ if apart then
    const int part = lane % 16 * 32 / (COLUMNS / 2); /* 0: of b's first half */
    const int x = t->column / 2 + lane % 16 * 32 + part * (f->columns - COLUMNS) / 2;
//$ else
    const int x = t->column + lane % 16 * 32;
//$ end
    const int y = row + lane / 16 * 64;

    if (lane % 16 * 32 < COLUMNS && x < f->columns)
        prefetch(b + x);
//$ if gathers then
    if (lane % 16 == 0 && lane / 16 * 64 < ROWS && y < rows)
        prefetch(f->pairs + t->start + y);
//$ else
    if (lane % 16 == 0 && lane / 16 * 64 < ROWS && y < rows)
        prefetch(a + y);
//$ end
}

//$ if gathers then
//$ include "sm90/factor_of_token.cu"
//$ end

//$ -- gradients load a part of a row's sums at a time
//$ local parts = epilogue == "gradient" and arch == "sm_100f"
//$ local from = parts and "column" or apart and "t->column / 2" or "t->column"
//$ local across = parts and "SUMS / (ROWS / 16)" or "COLUMNS / 8"
//$ if parts then
/* The warp's rows of D begin at `row` of the group's `rows`, and the sums' columns at `column`. */
FN void scale_sums(float sum[SUMS], const struct factors *f, const struct tile *t, int column,
                   int row, int rows, int lane)
{
//$ else
/* The warp's rows of D begin at `row` of the group's `rows`. */
FN void scale_sums(float sum[SUMS], const struct factors *f, const struct tile *t, int row,
                   int rows, int lane)
{
//$ end
//$ if gathers then
    const float *const b = f->b + t->group * f->b_group_stride;
//$ else
    const float *a = f->a + $(a_first), *b = f->b + t->group * f->b_group_stride;
//$ end
//$ if ragged == "k" then
    /* An empty group's scales may be unwritten. */
    const int columns = t->length > 0 ? f->columns : 0;
//$ else
    $(apart and "int" or "const int") columns = f->columns;
//$ end
    float of_row[ROWS / 32];

    row += lane / 4;
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++) {
        const int y = row + i / 2 * 64 + i % 2 * 8;
//$ if ragged == "k" then
        of_row[i] = y < rows && columns > 0 ? a[y] : 0;
//$ elseif gathers then
        of_row[i] = y < rows ? factor_of(f, t->start + y) : 0;
//$ else
        of_row[i] = y < rows ? a[y] : 0;
//$ end
    }
#pragma unroll
    for (int j = 0; j < $(across); j++) {
        const int x = $(from) + 8 * j + lane % 4 * 2;
//$ if apart then
        if (j == COLUMNS / 16) { /* the rest is of B's second half */
            b += (f->columns - COLUMNS) / 2;
            columns -= (f->columns - COLUMNS) / 2;
        }
//$ end
        const float left = x < columns ? b[x] : 0, right = x < columns ? b[x + 1] : 0;
#pragma unroll
        for (int i = 0; i < ROWS / 32; i++) {
            float *s = sum + i / 2 * (COLUMNS / 2) + 4 * j + i % 2 * 2;
            s[0] = s[0] * of_row[i] * left;
            s[1] = s[1] * of_row[i] * right;
        }
    }
}
//$ else

/* The factors of a thread's rows, 16 of each 64, from their scales next to a stage. */
FN void factors_of_rows(float of_row[ROWS / 32], unsigned int sf)
{
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++)
        of_row[i] = load_shared(sf + (i / 2 * 64 + i % 2 * 8) * 4);
}
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local across = scale.k > 0 and scale.k or 128
//$ local down = scale.rows > 0 and scale.rows or 1
/*
** Quantized tensors of a result, as host/quantize.c makes them: from $(d.type), to which a tile
** of results is rounded first.
*/
enum { IN_COPY, IN_BF16, IN_F16, IN_F32 }; /* types before the cast; COUPLED: types */
enum {
    TILE = 128,
    ACROSS = $(across), /* values of a line that share a scale */
    DOWN = $(down),     /* lines that share it */
    SF_LINES = $(scale.lines) /* that share a stored one */
};

//$ once("cast/from_" .. d.type .. ".c")
//$ once("cast/from_" .. element.type .. ".c")
//$ once("cast/to_" .. element.type .. ".c")
//$ if scale.hadamard then
//$   once "cast/hadamard.c"
//$ end
//$ include "quantize/storage.c"

//$ include "quantize/shape.c"

typedef $(scale.code) sf_element;

struct copy {
    unsigned char *data; /* null: not wanted */
    long long stride;    /* values from one line to the next */
    sf_element *sf;
};

struct work {
    int input; /* the type before the cast */
    struct copy row, column;
    struct shape all;
};

/* The destination of one group's results. */
struct result {
    struct work w;
    struct group g;
};

//$ include "host/quantize_rules.c"

//$ include "host/largest.c"

//$ include "host/quantize_lines.c"

//$ include "host/quantize_column.c"

//$ if epilogue == "copies" then
/* Results from (row, feature) of the group on, as values; zeros where there are none. */
static void multiply_tile(const struct product *p, int row, int feature, float tile[TILE][TILE])
{
    d_element results[TILE][TILE];
    const int two = takes_two(&p->follow), places = two ? 2 * TILE : TILE;
    const int first = two ? feature / HALF * BLOCK_N : feature;
    struct product part = *p;

    part.follow.d = results[0];
    part.follow.d_row = TILE;
    part.follow.d_first = (long long)row * TILE + feature;
    for (int m = row; m < p->m && m < row + TILE; m += BLOCK_M)
        for (int n = first; n < p->n && n < first + places; n += BLOCK_N)
            multiply_block(&part, m, n);
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            tile[i][j] = row + i < p->m && feature + j < p->follow.results
                             ? from_$(d.type)(results[i][j])
                             : 0;
}

//$ else
/* D from (row, feature) of the group on, as values; zeros where there is none. */
static void multiply_tile(const struct product *p, int row, int feature, float tile[TILE][TILE])
{
    d_element results[TILE][TILE];
    struct product part = *p;

    part.back.d = results[0];
    part.back.d_row = TILE;
    part.back.d_first = (long long)row * TILE + feature;
    part.back.from = feature;
    part.back.to = feature + TILE;
    for (int n = 0; n < p->n; n += BLOCK_N)
        if (makes(&part.back, n, p->n - n < BLOCK_N ? p->n - n : BLOCK_N))
            for (int m = row; m < p->m && m < row + TILE; m += BLOCK_M)
                multiply_block(&part, m, n);
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            tile[i][j] = row + i < p->m && feature + j < width_of(&p->back)
                             ? from_$(d.type)(results[i][j])
                             : 0;
}

/* Its parts of dbias. */
static void sum_tile(const struct product *p, int row, int feature, float tile[TILE][TILE])
{
    const struct back *const f = &p->back;
    const int width = width_of(f);

    for (int r = 0; r < TILE && row + r < p->m; r += STRIP) {
        const long long strip = f->first + (row + r) / STRIP;

        for (int j = 0; j < TILE && feature + j < width; j++) {
            float sum = -0.0f; /* to which -0 may be added */

            for (int i = r; i < r + STRIP && row + i < p->m; i++)
                sum = add_rn(sum, tile[i][j]);
            if (strip < f->strips) /* groups that overlap would not fit */
                f->partials[strip * width + feature + j] = sum;
        }
    }
}

//$ end
/* A tile of the rowwise and the columnwise tensor. */
static void quantize_tile(const struct product *p, int row, int feature)
{
    float tile[TILE][TILE];
    const struct work *const w = &p->result->w;
    const struct group *const g = &p->result->g;
    const struct scales s = row_scales(g, &w->all);
    const long long first = (long long)g->start + row;
    const struct lines lines = { &w->row, &s, row, feature, g->length - row,
                                 (int)w->row.stride - feature, first * w->row.stride + feature,
                                 first };

    multiply_tile(p, row, feature, tile);
//$ if epilogue ~= "copies" then
    if (p->back.partials)
        sum_tile(p, row, feature, tile);
//$ end
    quantize_lines(w, g, &lines, tile);
    if (w->column.data)
        quantize_column(w, g, row, feature, tile);
}

//$ local across = scale.k > 0 and scale.k or 128
//$ local down = scale.rows > 0 and scale.rows or 1
/*
** The copies of a result, as host/quantize.c makes them of numbers: of $(d.type), to which a tile
** of results is rounded first.
*/
enum { IN_COPY, IN_BF16, IN_F16, IN_F32 }; /* types before the cast; COUPLED: types */
enum {
    TILE = 128,
    ACROSS = $(across), /* values of a line that share a scale */
    DOWN = $(down)      /* lines that share it */
};

//$ once("cast/from_" .. d.type .. ".c")
//$ once("cast/from_" .. element.type .. ".c")
//$ once("cast/to_" .. element.type .. ".c")
//$ if scale.hadamard then
//$   once "cast/hadamard.c"
//$ end
//$ include "quantize/storage.c"

//$ include "quantize/shape.c"

typedef $(scale.type == "f32" and "float" or "unsigned char") sf_element;

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

/* Where one group's results go. */
struct result {
    struct work w;
    struct group g;
};

//$ include "host/quantize_rules.c"

//$ include "host/largest.c"

//$ include "host/quantize_lines.c"

//$ include "host/quantize_column.c"

/* Results from (row, feature) of the group on, as numbers; zeros where there are none. */
static void multiply_tile(const struct product *p, int row, int feature, float tile[TILE][TILE])
{
    static _Thread_local d_element results[TILE][TILE];
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

/* A tile of both copies. */
static void quantize_tile(const struct product *p, int row, int feature)
{
    static _Thread_local float tile[TILE][TILE];
    const struct work *const w = &p->result->w;
    const struct group *const g = &p->result->g;
    const struct scales s = row_scales(g, &w->all);
    const long long first = (long long)g->start + row;
    const struct lines lines = { &w->row, &s, row, feature, g->length - row,
                                 (int)w->row.stride - feature, first * w->row.stride + feature,
                                 first };

    multiply_tile(p, row, feature, tile);
    quantize_lines(w, g, &lines, tile);
    if (w->column.data)
        quantize_column(w, g, row, feature, tile);
}

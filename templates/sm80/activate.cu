//$ -- SPDX-License-Identifier: Apache-2.0
//$ local type = d.type
//$ once "cast/arith.c"
//$ once("cast/from_" .. type .. ".c")
//$ once("cast/to_" .. type .. ".c")
//$ once "cast/activation.c"
/*
** From the sums to global memory:  p = alpha * sum + bias, stored where it is wanted, and
** d = activation(p) times the row's probability; without an activation d = p, and the bias is times
** the probability. In fp32, rounded once.
**
** An activation of two operands takes them from two columns of p. The tile's rows of b make the
** first operands of 8 results, the second ones of the same, and so on.
*/
//$ include("quantize/epilogue_rows.cu", { input = d })

enum { SLAB_PITCH = WARP_N + 4 }; /* floats; 4 rows, 2 apart, are in different banks */

/* The caller's arguments, and those of the tile's group. */
struct work {
    $(type)_element *d, *saved;
    long long d_stride, saved_stride;
    int d_how, saved_how;
    const float *bias, *probability; /* or null */
    int activation;
    float limit, slope, shift, alpha;
};

//$ include("quantize/epilogue_eight.cu", { type = type })

/* The results of a tile. */
struct order {
    int first, results; /* the tile's first one; of all tiles */
    int two, run;       /* operands of a result, or one; see struct columns */
};

/* Those of the tile whose first column of p is `column`, of `columns`. */
FN struct order order_of(int activation, int interleave, int column, int columns)
{
    const int two = GATED >> activation & 1, results = two ? columns / 2 : columns;
    const struct order o = { two ? column / 2 : column, results, two,
                             interleave ? interleave : results };

    return o;
}

/* The column of p that the tile's row `row` of b makes. Rows that are not there are those of the
   last result again: nothing stores their sums. */
FN int column_of_row(const struct order *o, int row)
{
    const int result = o->first + (o->two ? row / 16 * 8 + row % 8 : row);
    const struct columns c = columns_at(result < o->results ? result : o->results - 1, o->results,
                                        o->run, o->two);

    return (int)c.first + (o->two ? row / 8 % 2 * o->run : 0);
}

/* A warp's sums into its slab, which has all tokens as rows. */
FN void fill_slab(float *slab, const float sum[WARP_N / 16][TILE_M / 8][4])
{
    const int lane = threadIdx.x % 32;
    float *to = slab + lane % 4 * 2 * SLAB_PITCH + lane / 4;

#pragma unroll
    for (int i = 0; i < WARP_N / 16; i++)
#pragma unroll
        for (int j = 0; j < TILE_M / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                to[(8 * j + c % 2) * SLAB_PITCH + 16 * i + c / 2 * 8] = sum[i][j][c];
}

/* The results of a warp's sums: `tokens` rows from `first` on, each lane eight of some. */
FN void store_results(const struct work *w, const struct order *o, float *slab,
                      const float sum[WARP_N / 16][TILE_M / 8][4], long long first, int tokens)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int side = o->two ? WARP_N / 16 : WARP_N / 8; /* lanes that have a row */
    const int number = lane % side;
    const struct columns all =
        columns_at(o->first + (warp * side + number) * EIGHT, o->results, o->run, o->two);
    const struct columns *c = &all;
    const struct columns result = columns_at(c->result, c->result + c->count, 0, 0);
    float bias[2][EIGHT] = { { 0 } };

    fill_slab(slab, sum);
    __syncwarp();
    if (c->count <= 0)
        return;
    if (w->bias)
        load_bias(bias, w->bias, c);
#pragma unroll 1
    for (int token = lane / side; token < tokens; token += 32 / side) {
        const long long row = first + token;
        const float *from = slab + token * SLAB_PITCH + number * (o->two ? 16 : 8);
        const float weight = w->probability ? __ldg(w->probability + row) : 1;
        const float of_bias = w->activation ? 1 : weight;
        float x[2][EIGHT] = { { 0 } };

        get_f32(x[0], from);
        if (o->two)
            get_f32(x[1], from + EIGHT);
#pragma unroll
        for (int i = 0; i < 2 * EIGHT; i++)
            x[i / EIGHT][i % EIGHT] = mul_rn(w->alpha, x[i / EIGHT][i % EIGHT]);
        //$ include("quantize/epilogue_row.body.cu", { type = type })
    }
}

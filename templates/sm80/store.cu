//$ -- SPDX-License-Identifier: Apache-2.0
/*
** From the sums to global memory:  D = alpha * sum + beta * C, in fp32, rounded once. A warp lays
** 16 rows of its sums into shared memory and takes them out again as runs of 16 bytes of D.
*/
enum {
    RUN = 16 / sizeof(output), /* elements */
    RUNS = WARP_N / RUN,       /* of a row */
    PASSES = 16 * RUNS / 32,   /* runs of each lane in 16 rows */
    SLAB_PITCH = WARP_N + 8    /* floats; 4 rows side by side are in different banks */
};

/* One tile of D, and of C. */
struct target {
    output *d;
    const output *c; /* not read where beta is 0 */
    long long d_stride, c_stride;
    int rows, columns; /* of D, from the tile's first element on */
    int whole;         /* runs start at multiples of 16 bytes */
    float alpha, beta;
//$ if params.scatter then
    const int *scatter; /* of the tile's rows: that of D which has each, or null: in order */
    const unsigned long long *addresses; /* of all rows of D, 0: none; or null */
    output *first; /* the tile's first column in the first row of all of D */
    int all_rows, column;
//$ end
};

/* Row `row` of the tile, from its first column on; null: it is not written. */
FN output *row_of(const struct target *t, int row)
{
    const int to = row < t->rows && t->scatter ? t->scatter[row] : row;

    if (!t->scatter)
        return t->d + row * t->d_stride;
    if (row >= t->rows || to < 0 || to >= t->all_rows)
        return 0;
    if (!t->addresses)
        return t->first + to * t->d_stride;
    return t->addresses[to] ? (output *)t->addresses[to] + t->column : 0;
}

/* All runs of D, and of C if it is read, start at multiples of 16 bytes. */
FN int runs_aligned(const struct target *t)
{
    size_t odd = (size_t)t->d | (size_t)t->d_stride * sizeof(output);

    if (t->beta != 0)
        odd |= (size_t)t->c | (size_t)t->c_stride * sizeof(output);
    return odd % 16 == 0;
}

/* The first `count` elements of a run. */
FN void load_run(float *x, const output *from, int count, int whole)
{
    if (whole && count == RUN) {
        unsigned int word[4];
        load_global_x4(word, from);
#pragma unroll
        for (int i = 0; i < 4; i++)
            unpack(x + i * PER_WORD, word[i]);
    } else {
#pragma unroll
        for (int i = 0; i < RUN; i++)
            if (i < count) {
                float pair[2];
                unpack(pair, load_output(from + i));
                x[i] = pair[0];
            }
    }
}

FN void store_run(output *to, const float *x, int count, int whole)
{
    if (whole && count == RUN) {
        unsigned int word[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            word[i] = pack(x + i * PER_WORD);
        store_global_x4(to, word);
    } else {
#pragma unroll
        for (int i = 0; i < RUN; i++)
            if (i < count) {
                const float pair[2] = { x[i], 0 };
                store_output(to + i, (output)pack(pair));
            }
    }
}

/* How many elements of D the lane has in its run of this pass, and where. */
struct run {
    int row, column, count;
};

FN struct run run_of(const struct target *t, int row, int column, int pass)
{
    const int number = pass * 32 + threadIdx.x % 32;
    struct run r = { row + number / RUNS, column + number % RUNS * RUN, 0 };

    if (r.row < t->rows && r.column < t->columns)
        r.count = t->columns - r.column < RUN ? t->columns - r.column : RUN;
    return r;
}

//$ if turned then
/* The sums of 16 rows of D into the warp's slab: those from the warp's row `row` on. */
FN void fill_slab(float *slab, const float sum[WARP_N / 16][WARP_M / 8][4], int row)
{
    const int lane = threadIdx.x % 32;
    float *to = slab + lane % 4 * 2 * SLAB_PITCH + lane / 4;

#pragma unroll
    for (int i = 0; i < WARP_N / 16; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                to[(8 * j + c % 2) * SLAB_PITCH + 16 * i + c / 2 * 8] = sum[i][row / 8 + j][c];
}

//$ else
/* 16 rows of sums into the warp's slab. */
FN void fill_slab(float *slab, const float sum[WARP_N / 8][4])
{
    const int lane = threadIdx.x % 32;
    float *to = slab + lane / 4 * SLAB_PITCH + lane % 4 * 2;

#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++) {
        *(float2 *)(to + 8 * j) = make_float2(sum[j][0], sum[j][1]);
        *(float2 *)(to + 8 * j + 8 * SLAB_PITCH) = make_float2(sum[j][2], sum[j][3]);
    }
}

//$ end
//$ local sums = turned and "[WARP_N / 16][WARP_M / 8][4]" or "[WARP_M / 16][WARP_N / 8][4]"
/* Store a warp's sums; `row` and `column` are its first ones in the tile. */
FN void store_sums(const struct target *t, float *slab,
                   const float sum$(sums), int row, int column)
{
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++, row += 16) {
        float x[PASSES][RUN] = { { 0 } }; /* C, then D */

        if (t->beta != 0)
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++) {
                const struct run r = run_of(t, row, column, pass);
                load_run(x[pass], t->c + r.row * t->c_stride + r.column, r.count, t->whole);
            }
        fill_slab(slab, $(turned and "sum, 16 * i" or "sum[i]"));
        __syncwarp();
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const struct run r = run_of(t, row, column, pass);
            const float *from = slab + (r.row - row) * SLAB_PITCH + r.column - column;
#pragma unroll
            for (int j = 0; j < RUN; j++)
                x[pass][j] = __fadd_rn(__fmul_rn(t->alpha, from[j]),
                                       __fmul_rn(t->beta, x[pass][j]));
//$ if params.scatter then
            output *const to = row_of(t, r.row);

            store_run(to + r.column, x[pass], to ? r.count : 0, t->whole);
//$ else
            store_run(t->d + r.row * t->d_stride + r.column, x[pass], r.count, t->whole);
//$ end
        }
        __syncwarp(); /* all have read the slab before it is filled again */
    }
}

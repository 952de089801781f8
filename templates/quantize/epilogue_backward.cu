//$ -- SPDX-License-Identifier: Apache-2.0
//$ local type = input.type
enum {
    COLUMNS = 64,            /* of a sum for dprob */
    APART = COLUMNS + EIGHT, /* of two such: neighbouring threads meet other banks */
    TERMS = 4 * APART        /* of a warp: 64 columns each, two of either half */
};

/* Eight columns of p become those of d, and `terms` the results' terms of dprob. */
FN void differentiate_eight(const int which, float p[2][EIGHT], const float dh[EIGHT],
                            const struct work *w, float weight, float terms[EIGHT])
{
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        const float a = p[0][i], b = p[1][i], weighted = mul_rn(dh[i], weight);
        const struct gradient grows =
            activate_gradient(which, a, b, w->limit, w->slope, w->shift);

        terms[i] = mul_rn(dh[i], activate(which, a, b, w->limit, w->slope, w->shift));
        p[0][i] = mul_rn(weighted, grows.a);
        p[1][i] = mul_rn(weighted, grows.b);
    }
}

/*
** Sums of 64 terms, of a row of each half of the warp: a lane has the sums of columns 8 i + 2 l and
** the next one in ascending order, with l = lane % 4; then come the sums of lanes 2 and 1 away. The
** second half of the lanes does the same again.                         COUPLED: row partials
*/
FN float sum_terms(const float *terms, int lane)
{
    const float *from = terms + lane / 4 % 4 * APART + lane % 4 * 2;
    float total = 0;

#pragma unroll
    for (int i = 0; i < COLUMNS / EIGHT; i++) {
        const float2 next = *(const float2 *)(from + i * EIGHT);

        total = add_rn(add_rn(total, next.x), next.y);
    }
    total = add_rn(total, __shfl_xor_sync(~0u, total, 2));
    return add_rn(total, __shfl_xor_sync(~0u, total, 1));
}

/* One row: `sum` are those of d's columns. */
FN void finish_row(const struct work *w, long long row, const struct columns *c,
                   const struct columns *result, float sum[2][EIGHT], float terms[EIGHT])
{
    const float weight = w->probability ? __ldg(w->probability + row) : 1;
    float dh[2][EIGHT], p[2][EIGHT];

    load_f32(dh, w->in + row * w->in_stride, result, w->in_how);
    load_$(type)(p, w->saved + row * w->saved_stride, c, w->saved_how);
    switch (w->activation) {
//$ for i in ipairs(activations) do
    case $(i):
        differentiate_eight($(i), p, dh[0], w, weight, terms);
        break;
//$ end
    }
    store_$(type)(w->d + row * w->d_stride, p, c, w->d_how);
#pragma unroll
    for (int i = 0; i < 2 * EIGHT; i++)
        sum[i / EIGHT][i % EIGHT] = add_rn(sum[i / EIGHT][i % EIGHT],
                                           from_$(type)(to_$(type)(p[i / EIGHT][i % EIGHT])));
}

/*
** The thread's results of all its rows, whose sums are those of `strip`; `terms` are the warp's.
** The thread adds up dprob of a row of either half of its warp, all of which go on to the end.
*/
FN void finish_rows(const struct work *w, const struct rows *rows, const struct columns *c,
                    long long strip, float *terms)
{
    const int lane = threadIdx.x % 32, half = lane / 8 % 2 - lane / 16; /* that of its sums */
    const int mine = c->count <= 0 ? 0 : rows->count < ROWS ? rows->count : ROWS;
    const int most = rows->most < ROWS ? rows->most : ROWS;
    const int columns = c->result + c->count;
    const int column = c->result - EIGHT * (lane % 16) + COLUMNS * (lane / 4 % 2);
    const struct columns result = columns_at(c->result, columns, 0, 0);
    float sum[2][EIGHT];

#pragma unroll
    for (int i = 0; i < 2 * EIGHT; i++)
        sum[i / EIGHT][i % EIGHT] = -0.0f; /* to which -0 may be added */
#pragma unroll 1
    for (int i = 0; i < most; i++) {
        float here[EIGHT];

#pragma unroll
        for (int j = 0; j < EIGHT; j++)
            here[j] = 0;
        if (i < mine)
            finish_row(w, rows->first + i, c, &result, sum, here);
        if (!w->row_partials)
            continue;
        put_f32(terms + lane / 8 * APART + lane % 8 * EIGHT, here);
        __syncwarp();
        const float total = sum_terms(terms, lane);
        if (lane < 16 && lane % 4 == 0 && column < columns && i < rows->count - ROWS * half)
            w->row_partials[(long long)(column / COLUMNS) * w->rows + rows->first +
                            ROWS * half + i] = total;
        __syncwarp();
    }
    if (mine > 0 && w->partials)
        store_f32(w->partials + strip * columns * (c->two ? 2 : 1), sum, c,
                  how_of(w->partials, 0, columns, c->two, c->run));
}

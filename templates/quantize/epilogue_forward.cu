//$ -- SPDX-License-Identifier: Apache-2.0
//$ local type = input.type
/* The group's bias of a thread's results. */
FN void load_bias(float bias[2][EIGHT], const float *from, const struct columns *c)
{
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        const long long at = column_of(c, i);

        bias[0][i] = i < c->count ? __ldg(from + at) : 0;
        bias[1][i] = c->two && i < c->count ? __ldg(from + at + c->run) : 0;
    }
}

/* Results of eight columns. */
FN void activate_eight(const int which, float x[2][EIGHT], const struct work *w, float weight)
{
#pragma unroll
    for (int i = 0; i < EIGHT; i++)
        x[0][i] = mul_rn(activate(which, x[0][i], x[1][i], w->limit, w->slope, w->shift), weight);
}

/* The thread's results of all its rows; the group's bias is `place` elements on. */
FN void finish_rows(const struct work *w, const struct rows *rows, const struct columns *c,
                    long long place)
{
    const int count = c->count <= 0 ? 0 : rows->count < ROWS ? rows->count : ROWS;
    const struct columns result = columns_at(c->result, c->result + c->count, 0, 0);
    float bias[2][EIGHT] = { { 0 } };

    if (w->bias)
        load_bias(bias, w->bias + place, c);
#pragma unroll 1
    for (long long row = rows->first; row < rows->first + count; row++) {
        const float weight = w->probability ? __ldg(w->probability + row) : 1;
        const float of_bias = w->activation ? 1 : weight;
        float x[2][EIGHT];

        load_f32(x, w->in + row * w->in_stride, c, w->in_how);
        if (w->bias) {
#pragma unroll
            for (int i = 0; i < 2 * EIGHT; i++)
                x[i / EIGHT][i % EIGHT] = add_rn(x[i / EIGHT][i % EIGHT],
                                                 mul_rn(bias[i / EIGHT][i % EIGHT], of_bias));
        }
        if (w->saved)
            store_$(type)(w->saved + row * w->saved_stride, x, c, w->saved_how);
        switch (w->activation) {
//$ for i in ipairs(activations) do
        case $(i):
            activate_eight($(i), x, w, weight);
            break;
//$ end
        }
        store_$(type)(w->d + row * w->d_stride, x, &result, w->d_how);
    }
}

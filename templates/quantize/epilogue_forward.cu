//$ -- SPDX-License-Identifier: Apache-2.0
//$ local type = input.type
//$ include("quantize/epilogue_eight.cu", { type = type })

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
        //$ include("quantize/epilogue_row.body.cu", { type = type })
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
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

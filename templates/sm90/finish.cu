//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
/* One tile's state of it. */
struct finish {
    const struct follow *of;
//$ if not back then
    const float *bias; /* the group's, or null */
//$ end
    float alpha;
    float probability[ROWS / 32]; /* of the thread's rows */
};

/* Read while the tile is multiplied. The warp's rows of D begin at `row` of the group's `rows`. */
FN struct finish finish_of(const struct follow *f, const struct tile *t, int row, int rows,
                           int lane)
{
    struct finish s;

    s.of = f;
    s.alpha = f->alpha ? __ldg(f->alpha + t->group * f->step) : 1;
//$ if not back then
    s.bias = f->bias ? f->bias + (long long)t->group * f->columns : 0;
//$ end
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++) {
        const int y = row + lane / 4 + i / 2 * 64 + i % 2 * 8;
        s.probability[i] =
            f->probability && y < rows ? __ldg(f->probability + t->start + y) : 1;
    }
    return s;
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
//$ once "cast/activation.c"
//$ once("cast/from_" .. d.type .. ".c")
//$ local copies = epilogue == "gradient_copies"
/*
** The code below the product, of one group: alpha * sum is the gradient of the value that a row's
** probability multiplied, or without one of an activation's result; d is the gradient of the
** pre-activation p. All of it is in fp32, and d is rounded once.
**
** Each block of 64 x 64 leaves its parts of dprob and of dbias: of a row's columns the sums of 2 l
** and 2 l + 1 of every 8 in ascending order, (0 + 2) + (1 + 3) of these; of 32 rows of d, in order.
**                                                                    COUPLED: row partials
*/
enum { STRIP = 32 };
//$ include "cast/gated.c"

struct back {
    int columns; /* of the product */
    int which, interleave;
    float limit, slope, shift;
    const float *alpha, *probability; /* or null */
    d_element *d;
    const d_element *saved;
    long long d_row, saved_row;
    float *row_partials; /* of the group's first row; or null */
    long long rows;      /* of all groups */
    float *partials;     /* of all groups' first strip; or null */
    long long first, strips; /* the group's first strip, and how many there are */
//$ if copies then
    int from, to;      /* columns of d that are there */
    long long d_first; /* elements from d[0,0] on that are not */
//$ end
};

static int takes_two(const struct back *f)
{
    return GATED >> f->which & 1;
}

static int width_of(const struct back *f)
{
    return takes_two(f) ? 2 * f->columns : f->columns;
}

/* The columns of the operands of result `column` in a row of p and d. */
static void find_columns(const struct back *f, int column, int at[2])
{
    const int run = f->interleave ? f->interleave : f->columns;

    at[0] = takes_two(f) ? column / run * 2 * run + column % run : column;
    at[1] = takes_two(f) ? at[0] + run : at[0];
}

/* Does a block from column `first` of the product on make some of these columns of d? */
static int makes(const struct back *f, int first, int columns)
{
    for (int i = 0; i < columns; i++) {
        int at[2];

        find_columns(f, first + i, at);
        for (int j = 0; j < 2; j++)
            if (at[j] >= f->from && at[j] < f->to)
                return 1;
    }
    return 0;
}

/* An element of d. */
static void store_at(const struct back *f, int row, int column, float value)
{
//$ if copies then
    if (column >= f->from && column < f->to)
        f->d[row * f->d_row + column - f->d_first] = to_$(d.type)(value);
//$ else
    f->d[row * f->d_row + column] = to_$(d.type)(value);
//$ end
}

/* A row of a block; returns its part of dprob. */
static float follow_row(const struct back *f, const float *sum, int row, int first, int columns)
{
    const d_element *p = f->saved + row * f->saved_row;
    const float weight = f->probability ? f->probability[row] : 1;
    float total[4] = { 0 };

    for (int i = 0; i < columns; i++) {
        const float dh = f->alpha ? mul_rn(*f->alpha, sum[i]) : sum[i];
        const float weighted = mul_rn(dh, weight);
        struct gradient grows;
        float a, b;
        int at[2];

        find_columns(f, first + i, at);
        a = from_$(d.type)(p[at[0]]);
        b = from_$(d.type)(p[at[1]]);
        grows = activate_gradient(f->which, a, b, f->limit, f->slope, f->shift);
        total[i / 2 % 4] = add_rn(
            total[i / 2 % 4],
            mul_rn(dh, activate(f->which, a, b, f->limit, f->slope, f->shift)));
        if (takes_two(f))
            store_at(f, row, at[1], mul_rn(weighted, grows.b));
        store_at(f, row, at[0], mul_rn(weighted, grows.a));
    }
    return add_rn(add_rn(total[0], total[2]), add_rn(total[1], total[3]));
}

/* A column of d in one strip. */
static void sum_strip(const struct back *f, int row, int rows, int column)
{
    const long long strip = f->first + row / STRIP;
    float sum = -0.0f; /* to which -0 may be added */

    for (int i = 0; i < rows; i++)
        sum = add_rn(sum, from_$(d.type)(f->d[(row + i) * f->d_row + column]));
    if (strip < f->strips) /* groups that overlap would not fit */
        f->partials[strip * width_of(f) + column] = sum;
}

/* The sums of a block become d; it is 64 x 64, but for the last ones. */
static void follow_block(const struct back *f, const float *sums, int step, int row, int first,
                         int rows, int columns)
{
//$ if copies then
    int at[2];

    find_columns(f, first, at); /* of the tiles that these columns are in, one keeps their sums */
//$ end
    for (int r = 0; r < rows; r++) {
        const float part = follow_row(f, sums + (long long)r * step, row + r, first, columns);

//$ local keeps = copies and " && at[0] >= f->from && at[0] < f->to" or ""
        if (f->row_partials$(keeps))
            f->row_partials[first / 64 * f->rows + row + r] = part;
    }
//$ if not copies then
    for (int r = 0; r < rows && f->partials; r += STRIP)
        for (int i = 0; i < columns; i++) {
            int at[2];

            find_columns(f, first + i, at);
            for (int j = 0; j <= takes_two(f); j++)
                sum_strip(f, row + r, rows - r < STRIP ? rows - r : STRIP, at[j]);
        }
//$ end
}

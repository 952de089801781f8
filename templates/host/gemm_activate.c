//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
//$ once "cast/activation.c"
/*
** The code below the product, of one group: alpha * sum + bias, of which an activation makes d. The
** row's probability multiplies that result, or without an activation the bias.
**
** An activation of two operands takes them from two columns of the product. So that both are in
** one block, blocks have the first operands of HALF results and then their second ones; columns
** counted in this order are positions.
*/
enum { HALF = BLOCK_N / 2 };
//$ include "cast/gated.c"

struct follow {
    int columns, results; /* of the product, of d */
    int which, interleave;
    float limit, slope, shift;
    const float *alpha, *bias, *probability; /* or null */
    d_element *d, *saved;                    /* first elements; nothing is saved: null */
    long long d_row, saved_row;
//$ if epilogue == "copies" then
    long long d_first; /* elements from d[0,0] on that are not there */
//$ end
};

static int takes_two(const struct follow *f)
{
    return GATED >> f->which & 1;
}

/* The number of positions. */
static int count_places(const struct follow *f)
{
    return takes_two(f) ? (f->results + HALF - 1) / HALF * BLOCK_N : f->columns;
}

/* The result at a position. */
static int result_at(const struct follow *f, int place)
{
    return takes_two(f) ? place / BLOCK_N * HALF + place % HALF : place;
}

/* The column of the product at a position; -1 if there is none. */
static int column_at(const struct follow *f, int place)
{
    const int result = result_at(f, place), second = place % BLOCK_N / HALF;
    const int run = f->interleave ? f->interleave : f->results;

    if (result >= f->results)
        return -1;
    return takes_two(f) ? result / run * 2 * run + result % run + second * run : result;
}

/* A row of the group, from the sums of a block's positions. */
static void follow_row(const struct follow *f, const float sum[BLOCK_N], int row, int place,
                       int places)
{
    const int two = takes_two(f), results = two ? HALF : places;
    const float weight = f->probability ? f->probability[row] : 1;
    float given[BLOCK_N];

    for (int i = 0; i < places; i++) {
        const int column = column_at(f, place + i);
        if (column < 0)
            continue;
        given[i] = f->alpha ? mul_rn(*f->alpha, sum[i]) : sum[i];
        if (f->bias && f->which)
            given[i] = add_rn(given[i], f->bias[column]);
        else if (f->bias)
            given[i] = add_rn(given[i], mul_rn(f->bias[column], weight));
        if (f->saved)
            f->saved[row * f->saved_row + column] = to_$(d.type)(given[i]);
    }
    for (int i = 0; i < results; i++) {
        const int result = result_at(f, place + i);
        float value;
        if (result >= f->results)
            return;
        value = activate(f->which, given[i], two ? given[i + HALF] : 0, f->limit, f->slope,
                         f->shift);
        if (f->which)
            value = mul_rn(value, weight);
//$ local first = epilogue == "copies" and " - f->d_first" or ""
        f->d[row * f->d_row + result$(first)] = to_$(d.type)(value);
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A thread has eight neighbouring results of each row. Their operands are as many neighbours, or
** where those of both halves take turns one by one, twice as many: in both cases pieces of 16
** bytes, if rows begin at multiples of 16 bytes. All else is moved one by one.
*/
enum { EIGHT = 8 };
enum { WHOLE, TURNS, ONES };          /* how a row has the operands of eight results */

struct columns {
    int result, count; /* the first result of the thread, how many it has */
    int two;           /* operands of a result, or one */
    int run;           /* of results whose operands are side by side */
    long long first;   /* where the first result's first operand is */
};

/* The column of the first operand of a thread's result i; the second one is `run` further. */
FN long long column_of(const struct columns *c, int i)
{
    const int result = c->result + i;

    return c->two ? (long long)(result / c->run) * 2 * c->run + result % c->run : result;
}

FN struct columns columns_at(int result, int results, int interleave, int two)
{
    struct columns c;

    c.result = result;
    c.count = results - result;
    c.two = two;
    c.run = interleave ? interleave : results;
    c.first = column_of(&c, 0);
    return c;
}

/* How rows have the operands of results, or with one operand these. */
FN int how_of(const void *first, long long row_bytes, int results, int two, int run)
{
    if (((unsigned long long)first | row_bytes) % 16 || results % EIGHT)
        return ONES;
    return !two || run % EIGHT == 0 ? WHOLE : run == 1 ? TURNS : ONES;
}

//$ once "cast/from_f32.c"
//$ once "cast/to_f32.c"
//$ include("quantize/epilogue_move.cu", { type = "f32" })
//$ if input.type ~= "f32" then

//$ include("quantize/epilogue_move.cu", { type = input.type })
//$ end

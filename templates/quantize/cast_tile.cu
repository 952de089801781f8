//$ local bits = element.bits == 4 and 4 or 8 -- in memory
//$ local by_row = scale.span == "row" or (scale.span == "block" and scale.rows == 1)
/*
** All of a thread's values into both copies, and their sums: the row copy goes straight to memory,
** the column copy into the stage. `stored` rows of the row copy are, `rows` are in the group; the
** others are zeros. FULL: all of them, of either.
*/
template <int FULL>
DEVICE void cast_rows(struct shared *shared, const struct place *p, const struct copy *row,
                      const struct copy *column, const held v[ROWS], const struct factors *f,
                      int rows, int stored, long long at, long long along, float sum[2])
{
//$ if bits == 4 then
    unsigned char *const to = row->data + at / 2;
    const unsigned step = (unsigned)row->stride / 2;
//$ else
    unsigned char *const to = row->data + at;
    const unsigned step = (unsigned)row->stride;
//$ end
    unsigned words[2][WORDS];
    float before[2] = { 0, 0 }; /* the row above, times the columns' factors */
    int negative[2] = { 0, 0 };  /* rows of -0 */
//$ if scale.stochastic and not scale.hadamard then
    struct philox drawn[2];
//$ end

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float lo = lo_of(v[r]), hi = hi_of(v[r]);
//$ if by_row then
        const float factor = shared->row_factor[p->warp][p->lane / LANES][r];
//$ else
        const float factor = f->row[r / (ROWS / PARTS)];
//$ end
        const float a = mul_rn(lo, factor), b = mul_rn(hi, factor);
//$ if scale.stochastic then
        const unsigned codes = round_two(drawn_bytes(shared, p, r), a, b);
//$ else
        const unsigned codes = to_$(element.type)_x2(a, b);
//$ end
        if (FULL ? stored > 0 : r < stored)
//$ if bits == 4 then
            to[(unsigned long long)step * r] = (unsigned char)codes;
//$ else
            *(unsigned short *)(to + (unsigned long long)step * r) = (unsigned short)codes;
//$ end
        if (r == 0) {
            sum[0] = lo;
            sum[1] = hi;
        } else {
            sum[0] = add_rn(sum[0], lo);
            sum[1] = add_rn(sum[1], hi);
        }
        if (!FULL) {
            negative[0] += bits_of(lo) == 0x80000000u;
            negative[1] += bits_of(hi) == 0x80000000u;
        }
//$ if not scale.hadamard then
        const float c = mul_rn(lo, f->column[0][r / (ROWS / PARTS)]);
        const float d = mul_rn(hi, f->column[1][r / (ROWS / PARTS)]);
        if (r % 2 == 0) {
            before[0] = c;
            before[1] = d;
        } else {
//$ if scale.stochastic then
            if (r % 16 == 1) {
                drawn[0] = draw_line(column, along + r);
                drawn[1] = draw_line(column, along + column->stride + r);
            }
            gather(words[0], r - 1, round_two(drawn_rows(&drawn[0], r - 1), before[0], c));
            gather(words[1], r - 1, round_two(drawn_rows(&drawn[1], r - 1), before[1], d));
//$ else
            gather(words[0], r - 1, to_$(element.type)_x2(before[0], c));
            gather(words[1], r - 1, to_$(element.type)_x2(before[1], d));
//$ end
        }
        if (r % 16 == 15) { /* whether it is wanted or not: that costs least */
            stage_rows(shared, p, 0, r - 15, words[0]);
            stage_rows(shared, p, 1, r - 15, words[1]);
        }
//$ end
    }
    /* The zeros behind the group's rows are positive: only a sum of nothing but -0 would differ. */
    if (!FULL && negative[0] == rows)
        sum[0] = -0.0f;
    if (!FULL && negative[1] == rows)
        sum[1] = -0.0f;
}

//$ if scale.hadamard then
/* The column copy of values that are transformed first. */
FN void cast_turned(struct shared *shared, const struct place *p, const struct copy *column,
                    const held v[ROWS], const struct factors *f, long long at)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int second = i / 2, first = i % 2 * 16;
        unsigned words[WORDS];
        float c[16];
//$ if scale.stochastic then
        const struct philox drawn = draw_line(column, at + second * column->stride + first);
//$ end

        turn(v + first, second, c);
#pragma unroll
        for (int r = first; r < first + 16; r += 2) {
            const float factor = f->column[second][r / (ROWS / PARTS)];
            const float lo = mul_rn(c[r % 16], factor), hi = mul_rn(c[r % 16 + 1], factor);
//$ if scale.stochastic then
            gather(words, r, round_two(drawn_rows(&drawn, r), lo, hi));
//$ else
            gather(words, r, to_$(element.type)_x2(lo, hi));
//$ end
        }
        stage_rows(shared, p, second, first, words);
    }
}

//$ end
/* A tile: both copies, and the sums of each thread's rows. All threads come here together. */
FN void cast_tile(struct shared *shared, const struct place *p, const struct group *g,
                  const struct tile *t, const struct shape *all, const struct copy *row,
                  const struct copy *column, const held v[ROWS], float sum[2])
{
    const int rows = g->length - t->row - ROWS * p->part;
    const int in_row = row->data && t->column + 64 * p->half + 2 * p->lane < row->stride;
    const int stored = in_row ? rows : 0;
    const long long at = row_at(row, p, g, t, all);
    const long long along = column_at(column, g, t, all) +
                            (64 * p->half + 2 * p->lane) * column->stride + ROWS * p->part;
    struct factors f = { { 0 }, { { 0 } } };

//$ if scale.stochastic then
    if (row->data)
        draw_rows(shared, p, row, at);
//$ end
    find_factors(shared, p, g, t, all, row, column, v, &f);
    if (rows >= ROWS && $(bits) == 8) /* of 4 bits, both would need more registers than there are */
        cast_rows<1>(shared, p, row, column, v, &f, rows, stored, at, along, sum);
    else
        cast_rows<0>(shared, p, row, column, v, &f, rows, stored, at, along, sum);
//$ if scale.hadamard then
    if (column->data)
        cast_turned(shared, p, column, v, &f, along);
//$ end
    __syncthreads();
    if (column->data)
        store_stage(shared, column, g, t, all);
}

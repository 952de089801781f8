//$ -- SPDX-License-Identifier: Apache-2.0
//$ local bits = element.bits == 4 and 4 or 8 -- in memory
/* Two codes rounded by chance, with a byte each. */
FN unsigned round_two(unsigned bytes, float lo, float hi)
{
    return to_$(element.type)_stochastic(lo, bytes & 0xff) |
           to_$(element.type)_stochastic(hi, bytes >> 8 & 0xff) << $(bits == 4 and 4 or 8);
}

/*
** The bytes of the rowwise tensor's values. Eight lanes need the same sixteen of each row, so each
** draws for four rows. `at` is the number of the thread's first value in the copy.
*/
FN void draw_rows(struct shared *shared, const struct coord *p, const struct copy *row,
                  long long at)
{
    const unsigned long long seed = row->random[0], offset = row->random[1];

#pragma unroll
    for (int i = 0; i < ROWS / 8; i++) {
        const int r = i * 8 + p->lane % 8;
        const struct philox drawn =
            philox(seed, offset + (unsigned long long)(at + r * row->stride) / 16);
        shared->random[p->warp][r][p->lane / 8] =
            make_uint4(drawn.word[0], drawn.word[1], drawn.word[2], drawn.word[3]);
    }
    __syncwarp();
}

/* Those of a thread's two features in row r. */
FN unsigned drawn_bytes(const struct shared *shared, const struct coord *p, int r)
{
    return ((const unsigned short *)&shared->random[p->warp][r][p->lane / 8])[p->lane % 8];
}

/* The bytes of 16 rows of a feature: `at` is the number of one of their values in the copy. */
FN struct philox draw_line(const struct copy *column, long long at)
{
    return philox(column->random[0], column->random[1] + (unsigned long long)at / 16);
}

/* Those of rows r and r + 1 among the bytes drawn for 16 rows of a feature. */
FN unsigned drawn_rows(const struct philox *drawn, int r)
{
    return drawn->word[r % 16 / 4] >> r % 4 * 8;
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Rows' values become codes and scales, through the registers of one warp. Two threads share a
** row: each has the values of one box, half of a block. They are read twice, for their scale and
** for their codes: scales of several rows take hardly longer than those of one, and there are no
** registers to keep all their values in meanwhile.
*/
//$ once("cast/from_bf16.c")
//$ once("cast/to_" .. a.type .. ".c")

/* From a block's largest magnitude: the stored scale, and the values' factor. */
//$ rule "scale"

//$ include "sm90/pairs.cu"

enum { QUARTER = 16 }; /* pairs of values that a thread reads at a time */

/*
** The start of a thread's half of a row of values: eight chunks of 16 bytes, of which the copy
** engine's swizzle puts the i-th where address bits 4 to 6 differ by i. The second thread of a row
** begins with its fifth, so that those of four rows, which are read at once, are in all banks.
*/
FN unsigned int values_of(unsigned int values, int row, int half)
{
    return values + half * (VALUE_BYTES / 2) + row * 128 + (4 * half ^ row % 8) * 16;
}

/* And where its four chunks of codes go, in the same order. */
FN unsigned int codes_to(unsigned int to, int row, int half)
{
    return to + row * 128 + (6 * half ^ row % 8) * 16;
}

/* Four of them from the i-th on. */
FN void quarter_load(unsigned int pair[QUARTER], unsigned int from, int first)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_shared_x4(from ^ (first + i) * 16, pair + 4 * i);
}

/* The larger magnitudes of two pairs, with any sign; NaN loses against any number. */
FN unsigned int larger_signed(unsigned int a, unsigned int b)
{
    unsigned int most;

    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

/* The largest ones among the lower values and among the upper ones. */
FN unsigned int quarter_most(const unsigned int pair[QUARTER])
{
    unsigned int most[QUARTER / 2];

#pragma unroll
    for (int i = 0; i < QUARTER / 2; i++)
        most[i] = larger_signed(pair[i], pair[i + QUARTER / 2]);
#pragma unroll
    for (int step = QUARTER / 4; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < QUARTER / 4; i++)
            if (i < step)
                most[i] = larger_signed(most[i], most[i + step]);
    return most[0];
}

/* Their codes, in two chunks from the i-th on. */
FN void quarter_store(const unsigned int pair[QUARTER], unsigned int to, int first,
                      float factor)
{
    const float factors[4] = { factor, factor, factor, factor };
    unsigned int word[8];

#pragma unroll
    for (int i = 0; i < 8; i++)
        word[i] = codes_of(pair[2 * i], pair[2 * i + 1], factors);
#pragma unroll
    for (int i = 0; i < 2; i++)
        store_shared_x4(to ^ (first + i) * 16, word[4 * i], word[4 * i + 1], word[4 * i + 2],
                        word[4 * i + 3]);
}

/* The largest magnitudes of the warp's rows of one stage: units of UNIT rows, from `unit` on every
   WARPS-th. */
FN void units_most(unsigned int most[MOST], unsigned int values, int unit, int lane)
{
    unsigned int pair[2][QUARTER];
    unsigned int from = values_of(values, unit * UNIT + lane / 2, lane % 2);

#pragma unroll
    for (int i = 0; i < MOST; i++)
        most[i] = 0;
    quarter_load(pair[0], from, 0);
#pragma unroll
    for (int i = 0; i < 2 * MOST; i++) { /* one is loaded while the other is examined */
        if (i % 2 == 0 && unit + i / 2 * WARPS >= UNITS)
            break;
        if (i % 2 && unit + (i + 1) / 2 * WARPS < UNITS)
            from += WARPS * UNIT * 128;
        if (i + 1 < 2 * MOST)
            quarter_load(pair[(i + 1) % 2], from, (i + 1) % 2 * 4);
        if (i % 2 == 0)
            most[i / 2] = quarter_most(pair[0]);
        else
            most[i / 2] = larger_signed(most[i / 2], quarter_most(pair[1]));
        most[i / 2] = (unsigned int)afresh((int)most[i / 2]);
    }
#pragma unroll
    for (int i = 0; i < MOST; i++)
        most[i] = larger_signed(most[i], __shfl_xor_sync(~0u, most[i], 1));
}

/* The factors of each unit's rows; the scales are stored next to the stage. The two threads of a
   row find those of two units, each one's. */
FN void find_factors(float factor[MOST], const unsigned int most[MOST], unsigned int sf,
                     int unit, int lane)
{
    const int half = lane % 2;

#pragma unroll
    for (int i = 0; i < MOST; i += 2) {
        const int last = i + 1 == MOST ? i : i + 1;
        const unsigned int mine = magnitudes_of(half ? most[last] : most[i]);
        const int row = (unit + (half ? last : i) * WARPS) * UNIT + lane / 2;
        float stored;
        const float own =
            scale_of(fmaxf(fmaxf(lo_of(mine), 0), fmaxf(hi_of(mine), 0)), &stored);
        const float other = __shfl_xor_sync(~0u, own, 1);

        if (row < VALUE_ROWS)
            store_shared_word(sf + row * 4, bits_of(stored));
        factor[i] = half ? other : own;
        factor[last] = half ? own : other;
    }
}

/* The codes and scales of the same units. The first `rows` rows are the group's; the others
   need not be made. */
FN void units_make(unsigned int values, unsigned int to, unsigned int sf, int unit,
                   const unsigned int most[MOST], int rows, int lane)
{
    float factor[MOST];

    find_factors(factor, most, sf, unit, lane);
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        const int first = (unit + i * WARPS) * UNIT, thread = afresh(lane);
        const int row = first + thread / 2, half = thread % 2;
        unsigned int pair[2][QUARTER];
        unsigned int from, into;

        if (first >= VALUE_ROWS || first >= rows)
            break;
        from = values_of(values, row, half);
        into = codes_to(to, row, half);
        quarter_load(pair[0], from, 0);
        quarter_load(pair[1], from, 4);
        quarter_store(pair[0], into, 0, factor[i]);
        quarter_store(pair[1], into, 2, factor[i]);
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "quantize/pairs.cu"

/* The maxima of `COUNT` rows from v on, for each of the two features. */
template <int COUNT> FN magnitudes largest_of(const packed *v)
{
    magnitudes most = magnitudes_of(value(v, 0));

#pragma unroll
    for (int r = 1; r < COUNT; r++)
        most = larger_pair(most, magnitudes_of(value(v, r)));
    return most;
}

//$ include "quantize/reduce.cu"

//$ local wide = scale.span == "block" and scale.k < 64 and scale.k or 64
enum {
    WIDE = $(wide),        /* values that count together, of the 64 that a warp has of a row */
    BLOCKS = 64 / WIDE,
    PIECES = WIDE * (int)sizeof(packed) / 32 /* of 16 bytes, in a block */
};

/* The block that a lane comes to as its i-th: neighbours meet in different banks. */
FN int block_of(int lane, int i)
{
    return (lane / PIECES ^ i) % BLOCKS;
}

/* The largest ones of row `lane` of a warp's, whose first value is at v: of each block. */
FN void largest_of_row(const packed *v, int lane, float most[BLOCKS])
{
    const uint4 *const row = (const uint4 *)(v + lane * LINE);

#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        magnitudes both = magnitudes_of(pack(0, 0));

#pragma unroll
        for (int j = 0; j < PIECES; j++) {
            const uint4 piece = row[block_of(lane, i) * PIECES + (lane ^ j) % PIECES];
            const packed *const values = (const packed *)&piece;

#pragma unroll
            for (int k = 0; k < 16 / (int)sizeof(packed); k++)
                both = larger_pair(both, magnitudes_of(values[k]));
        }
        most[i] = larger(low_of(both), high_of(both));
    }
}

/* Sixteen rows of one of a thread's features. */
FN void take(const packed *v, int second, float c[16])
{
#pragma unroll
    for (int r = 0; r < 16; r++)
        c[r] = second ? hi_of(value(v, r)) : lo_of(value(v, r));
}

/* The same as the columnwise tensor takes them. */
FN void transform(const packed *v, int second, float c[16])
{
    take(v, second, c);
    hadamard16(c, $(scale.signs));
}

/* The largest of 16 or 32 of them. As rounding keeps order, only that one needs it. */
template <int COUNT> FN float largest_transformed(const packed *v, int second)
{
    float most = 0, c[16];

#pragma unroll
    for (int i = 0; i < COUNT / 16; i++) {
        take(v + i * 16 * LINE, second, c);
        butterflies16(c, $(scale.signs));
#pragma unroll
        for (int r = 0; r < 16; r++)
            most = larger(most, fabsf(c[r]));
    }
    return hadamard_result(most);
}

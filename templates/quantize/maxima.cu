//$ local packed = input.bits == 16
//$ include "quantize/pairs.cu"

/* What another lane has. */
FN magnitudes from_lane(magnitudes m, int mask)
{
//$ if packed then
    return __shfl_xor_sync(~0u, m, mask);
//$ else
    return hold(__shfl_xor_sync(~0u, m.lo, mask), __shfl_xor_sync(~0u, m.hi, mask));
//$ end
}

/* Of `COUNT` rows from v on, for each of the two features. */
template <int COUNT> DEVICE magnitudes largest_of(const held *v)
{
    magnitudes most = magnitudes_of(value(v, 0));

#pragma unroll
    for (int r = 1; r < COUNT; r++)
        most = larger_pair(most, magnitudes_of(value(v, r)));
    return most;
}

//$ include "quantize/reduce.cu"

/*
** Each row's largest over `LANES` neighbouring lanes: row_left says which rows a lane ends with.
** Rows r and r + 16 go together; at each step lanes give half of what they have to each other.
*/
template <int LANES> DEVICE void largest_of_rows(const held *v, float most[ROWS / LANES], int lane)
{
//$ if packed then
    unsigned both[ROWS / 2];

#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) {
        const unsigned x = magnitudes_of(value(v, i));
        const unsigned y = magnitudes_of(value(v, i + ROWS / 2));
        both[i] = larger_pair(__byte_perm(x, y, 0x5410), __byte_perm(x, y, 0x7632));
    }
//$ else
    held both[ROWS / 2];

#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) {
        const held x = value(v, i), y = value(v, i + ROWS / 2);
        both[i] = hold(larger(fabsf(x.lo), fabsf(x.hi)), larger(fabsf(y.lo), fabsf(y.hi)));
    }
//$ end
#pragma unroll
    for (int mask = LANES / 2, left = ROWS / 4; left > 0 && mask > 0; mask /= 2, left /= 2) {
        const int upper = lane & mask;
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
            if (i >= left)
                continue;
            const magnitudes kept = upper ? both[i + left] : both[i];
            const magnitudes given = upper ? both[i] : both[i + left];
            both[i] = larger_pair(kept, from_lane(given, mask));
        }
    }
    if (LANES == 32) {
        both[0] = larger_pair(both[0], from_lane(both[0], 1));
        most[0] = lane & 1 ? high_of(both[0]) : low_of(both[0]);
        return;
    }
#pragma unroll
    for (int i = 0; i < ROWS / LANES / 2; i++) {
        most[2 * i] = low_of(both[i]);
        most[2 * i + 1] = high_of(both[i]);
    }
}

/* The row that most[i] belongs to. */
template <int LANES> DEVICE int row_left(int lane, int i)
{
    if (LANES == 32)
        return lane / 2 + lane % 2 * (ROWS / 2);
    return lane % LANES * (ROWS / LANES / 2) + i / 2 + i % 2 * (ROWS / 2);
}

//$ if scale.hadamard then
/* Sixteen rows of one of a thread's features. */
FN void take(const held *v, int second, float c[16])
{
#pragma unroll
    for (int r = 0; r < 16; r++)
        c[r] = second ? hi_of(value(v, r)) : lo_of(value(v, r));
}

/* The same as the column copy takes them. */
FN void turn(const held *v, int second, float c[16])
{
    take(v, second, c);
    hadamard16(c, $(scale.signs));
}

/* The largest of 16 or 32 of them. As rounding keeps order, only that one needs it. */
template <int COUNT> DEVICE float largest_turned(const held *v, int second)
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
//$ end

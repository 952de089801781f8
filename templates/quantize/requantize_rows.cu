//$ -- SPDX-License-Identifier: Apache-2.0
/*
** w in $(recipe) as FP8 with a scale for each row: e4m3 codes, and in fp32 the power of two at
** which 6, e2m1's largest value, becomes 384 under the largest of the row's scales.
**
**   row     [groups, m, k]  $(element.type), with $(scale.type) scales of $(scale.k) values: row_sf
**   out     [groups, m, k]  e4m3; rows of out_stride bytes
**   out_sf  [groups, m]  fp32
**   flags   [0] becomes 1 and [1] 0 where some value is no such number: its scale is NaN, or it is
**           not 0 and more than 14 powers of two below the row's largest scale
**                                                                COUPLED: requantize -> factors.cu
**
** All other values are the same, to the bit. Each warp has every so many rows.
*/
#define FN __device__ __forceinline__
enum {
    THREADS = $(threads),
    WARPS = THREADS / 32,
    ACROSS = $(scale.k), /* values that share a scale */
    PIECES = 4           /* that a lane asks for together */
};

//$ once "cast/arith.c"
//$ include "quantize/requantize_part.cu"

/* A lane's pieces of a row from value `first` on; those past the row's end are empty. */
FN void read_pieces(struct part part[PIECES], const unsigned char *codes,
                    const unsigned char *scales, int first, int k)
{
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const int value = first + i * 32 * PIECE, count = k - value;

        part[i].codes = make_uint2(0, 0);
        part[i].scale = 0;
        if (count <= 0)
            continue;
        part[i].codes = *(const uint2 *)(codes + value / 2);
        part[i].scale = scales[value / ACROSS];
        cut_codes(&part[i].codes, count);
    }
}

/* The largest of a row's scales, for all lanes. */
FN int largest_scale(const unsigned char *scales, int k, int lane)
{
    int largest = 0;

    for (int i = lane; i < (k + ACROSS - 1) / ACROSS; i += 32)
        largest = max(largest, (int)scales[i]);
    return __reduce_max_sync(~0u, largest);
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, blocks = (k + ACROSS - 1) / ACROSS;
    const long long rows = (long long)groups * m, warps = (long long)gridDim.x * WARPS;
    int bad = 0;

    //$ include "common/enter.body.cu"
    for (long long i = (long long)blockIdx.x * WARPS + threadIdx.x / 32; i < rows; i += warps) {
        const unsigned char *codes = (const unsigned char *)row + i * (row_stride / 2);
        const unsigned char *scales = (const unsigned char *)row_sf + i * blocks;
        unsigned char *to = (unsigned char *)out + i * out_stride;
        struct part part[PIECES];

        read_pieces(part, codes, scales, lane * PIECE, k); /* with the scales, not after them */
        const int exponent = requantize_exponent(largest_scale(scales, k, lane));
        if (lane == 0)
            out_sf[i] = requantize_scale(exponent);
        for (int first = lane * PIECE; first < k; first += PIECES * 32 * PIECE) {
            if (first >= PIECES * 32 * PIECE)
                read_pieces(part, codes, scales, first, k);
#pragma unroll
            for (int j = 0; j < PIECES; j++) {
                const int value = first + j * 32 * PIECE;
                uint4 word;

                bad |= convert(&word, &part[j], exponent);
                if (value < k)
                    *(uint4 *)(to + value) = word;
            }
        }
    }
    if (bad) {
        flags[0] = 1;
        flags[1] = 0;
    }
}

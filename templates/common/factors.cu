//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The factors of a product of $(recipe) whose operands were dequantized in a pass.
**
**   factors       [2][groups]    fp32: alpha times the scales of the second level, then beta; or
**                                null
**   device_sizes  [2 groups + 1] int32: lengths at multiples of `align`, then where the groups
**                                begin, at multiples of 128 as in a columnwise tensor; or null
**   flags         [2]            of a product in FP8 and of one in bf16, each left out where its
**                                flag is not 0; or null: the first one's, until some value does
**                                not fit; both where the caller wants none
**
** One CTA. A factor that is null is 1.                                       COUPLED: factors
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads), TILE = 128 };

//$ include "common/sizes.c"

/* The sum over the lanes up to this one, each at most `most`: at most that. */
FN unsigned int sum_lanes(unsigned int value, unsigned int most, int lane)
{
    for (int distance = 1; distance < 32; distance *= 2) {
        const unsigned int below = __shfl_up_sync(~0u, value, distance);

        if (lane >= distance)
            value = below > most - value ? most : value + below;
    }
    return value;
}

/* Called by a whole warp: each lane has one of 32 groups at a time. */
FN void place_groups(const void *first_dims, const void *offsets, int bytes, int groups,
                     unsigned int rows, int align, int *to, int lane)
{
    const unsigned int most = (unsigned int)((rows + (TILE - 1ll) * groups) / TILE);
    unsigned int end = 0, first = 0; /* rows and tiles of the groups so far */

    for (int base = 0; base < groups; base += 32) {
        const int group = base + lane;
        long long given = 0;
        unsigned int start, length, tiles, reach;

        if (group < groups)
            given = group_length(first_dims, offsets, bytes, group);
        length = cut_to_rows(given, rows);
        reach = sum_lanes(lane == 0 ? cut_to_rows((long long)end + length, rows) : length, rows,
                          lane);
        start = __shfl_up_sync(~0u, reach, 1);
        start = lane == 0 ? end : start;
        if (offsets && group < groups)
            start = cut_to_rows(size_at(offsets, bytes, group), rows);
        length = length > rows - start ? rows - start : length;
        tiles = (length + TILE - 1) / TILE;
        tiles = sum_lanes(lane == 0 ? cut_to_rows((long long)first + tiles, most) : tiles, most,
                          lane);
        end = __shfl_sync(~0u, reach, 31);
        start = __shfl_up_sync(~0u, tiles, 1);
        start = lane == 0 ? first : start;
        first = __shfl_sync(~0u, tiles, 31);
        length = (length + align - 1) / align * align;
        if (group < groups) {
            to[group] = (int)(length > (tiles - start) * TILE ? (tiles - start) * TILE : length);
            to[groups + group] = (int)(start * TILE);
        }
    }
    if (lane == 0)
        to[2 * groups] = (int)(first * TILE);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    //$ include "common/wait.body.cu"
    for (int i = threadIdx.x; factors && i < groups; i += THREADS) {
        const float a = a_global ? a_global[i] : 1, b = b_global ? b_global[i] : 1;

        factors[i] = a * b * (alpha ? alpha[i * scalar_step] : 1);
        factors[groups + i] = beta ? beta[i * scalar_step] : 1;
    }
    if (flags && threadIdx.x == 0) {
        flags[0] = noop && *noop;
        flags[1] = 1; /* COUPLED: requantize */
    }
    if (device_sizes && threadIdx.x < 32)
        place_groups(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, align,
                     device_sizes, threadIdx.x);
}

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Zeros in D outside the groups: in its rows, or if the groups split these in columns of all rows,
** before the first group, between two, and after the last.
**
**   d  [m, n], elements of d_bytes; bytes between rows are not written
**
** Each warp finds all gaps, 32 groups at a time, and has the rows whose number modulo the warps is
** its own.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads), RAGGED_M = 1 /* COUPLED: axes */, VECTOR = 16 };

//$ include "common/sizes.c"

/* Called by a whole warp. */
FN void zero_bytes(char *to, long long bytes, int lane)
{
    const int past = (int)((unsigned long long)to % VECTOR);
    long long at = past ? VECTOR - past : 0; /* of the first whole vector */

    at = at < bytes ? at : bytes;
    if (lane < at)
        to[lane] = 0;
    for (at += lane * VECTOR; at + VECTOR <= bytes; at += 32 * VECTOR)
        *(uint4 *)(to + at) = make_uint4(0, 0, 0, 0);
    for (int i = 0; i < VECTOR && at + i < bytes; i++) /* one lane has these */
        to[at + i] = 0;
}

/* The ends of the groups up to this lane's: the largest, or if each begins where the last one ends
   the sum, at most `most`. */
FN unsigned int scan_ends(unsigned int end, int are_starts, unsigned int most, int lane)
{
    for (int distance = 1; distance < 32; distance *= 2) {
        const unsigned int below = __shfl_up_sync(~0u, end, distance);

        if (lane >= distance)
            end = are_starts ? max(end, below) : min(end + below, most);
    }
    return end;
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, by_rows = ragged == RAGGED_M;
    const unsigned int warps = gridDim.x * (THREADS / 32);
    const unsigned int warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const unsigned int all = by_rows ? m : n;
    unsigned int end = 0; /* of the groups so far */

    //$ include "common/enter.body.cu"
    /* A group of no length after the last one closes the last gap. */
    for (int base = 0; base <= groups; base += 32) {
        const int group = base + lane;
        unsigned int start = all, length = 0, reach = all, before, row, last, todo;

        if (group < groups) {
            length = cut_to_rows(group_length(first_dims, offsets, sizes_bytes, group), all);
            start = offsets ? cut_to_rows(size_at(offsets, sizes_bytes, group), all) : 0;
            reach = length > 0 ? min(start + length, all) : 0;
        }
        if (lane == 0)
            reach = offsets ? max(reach, end) : min(reach + end, all);
        reach = scan_ends(reach, offsets != 0, all, lane);
        before = __shfl_up_sync(~0u, reach, 1);
        before = lane == 0 ? end : before;
        end = __shfl_sync(~0u, reach, 31);
        row = by_rows ? before + (warps + warp - before % warps) % warps : warp;
        last = by_rows ? start : m;
        todo = (offsets && length > 0) || group == groups ? before < start && row < last : 0;
        todo = __ballot_sync(~0u, todo);
        while (todo) {
            const int from = __ffs(todo) - 1;
            const long long left = __shfl_sync(~0u, before, from);
            const long long right = __shfl_sync(~0u, start, from);
            const unsigned int stop = __shfl_sync(~0u, last, from);
            const long long column = by_rows ? 0 : left, width = by_rows ? n : right - left;

            for (unsigned int i = __shfl_sync(~0u, row, from); i < stop; i += warps)
                zero_bytes((char *)d + (i * d_stride + column) * d_bytes, width * d_bytes, lane);
            todo &= todo - 1;
        }
    }
}

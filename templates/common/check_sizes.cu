//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "common/size_rules.c"

/*
** Record the first group that breaks a rule: code, group, low and high word of the value. Each lane
** of a warp looks at one of 32 groups; results of groups after the first bad one do not matter.
** 1 if one does.
*/
FN int check_sizes(const void *first_dims, const void *offsets, int bytes, int groups,
                   unsigned int rows, unsigned int *error, int lane)
{
    unsigned int end = 0; /* of the groups so far */

//$ if rolled then
#pragma unroll 1
//$ end
    for (int base = 0; base < groups; base += 32) {
        const int group = base + lane;
        long long length = 0, start = 0;
        unsigned int reach, before, bad;
        int code;

        if (group < groups) {
//$ local wide = rolled and "wide" or "bytes"
//$ if rolled then
            const int wide = afresh(bytes); /* or there would be a loop for each */
//$ end
            length = group_length(first_dims, offsets, $(wide), group);
            start = offsets ? size_at(offsets, $(wide), group) : 0;
        }
        /* Groups with offsets end where the last one ends that is not empty; others add up. */
        reach = length > 0 ? cut_to_rows(start, rows) + cut_to_rows(length, rows) : 0;
        if (lane == 0)
            reach = offsets && reach < end ? end : offsets ? reach : reach + end;
//$ if rolled then
#pragma unroll 1
//$ end
        for (int distance = 1; distance < 32; distance *= 2) {
            const unsigned int below = __shfl_up_sync(~0u, reach, distance);
            if (lane >= distance)
                reach = !offsets ? cut_to_rows((long long)reach + below, rows)
                                 : reach < below ? below : reach;
        }
        before = __shfl_up_sync(~0u, reach, 1);
        before = lane == 0 ? end : before;
        start = offsets ? start : before;
        code = group < groups ? size_error(start, length, before, rows) : 0;
        bad = __ballot_sync(~0u, code);
        if (bad) {
            const long long value = code == SIZE_OVERLAP || start < 0 ? start : length;
            if (lane == __ffs(bad) - 1) {
                error[1] = (unsigned int)group;
                error[2] = (unsigned int)value;
                error[3] = (unsigned int)((unsigned long long)value >> 32);
                error[0] = (unsigned int)code;
            }
            return 1;
        }
        end = __shfl_sync(~0u, reach, 31);
    }
    return 0;
}

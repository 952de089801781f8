//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "common/merged.c"

/* Maps of each one's A and B as they are in memory. */
struct microbatch_maps {
    struct {
        tensor_map a, b;
    } part[MICROBATCHES];
};

/* Record the first microbatch whose sizes break a rule, then act as check_sizes. */
FN void check_microbatches(const struct microbatches *microbatches, int count, int groups,
                           unsigned int *error, int lane)
{
    for (int i = 0; i < count; i++) {
        const struct microbatch *of = &microbatches->part[i];

        if (!check_sizes(of->first_dims, of->offsets, of->sizes_bytes, groups,
                         (unsigned int)of->k, error, lane))
            continue;
        if (lane == 0)
            error[4] = (unsigned int)i;
        return;
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "common/size_rules.c"

/* Record the first group that breaks a rule: code, group, low and high word of the value. 1 if one
   does. */
static int check_sizes(const void *first_dims, const void *offsets, int bytes, int groups,
                       unsigned int rows, unsigned int *error)
{
    unsigned int end = 0;

    for (int group = 0; group < groups; group++) {
        const long long length = group_length(first_dims, offsets, bytes, group);
        const long long start = offsets ? size_at(offsets, bytes, group) : (long long)end;
        const int code = size_error(start, length, end, rows);
        if (code) {
            const long long value = code == SIZE_OVERLAP || start < 0 ? start : length;
            error[1] = (unsigned int)group;
            error[2] = (unsigned int)value;
            error[3] = (unsigned int)((unsigned long long)value >> 32);
            error[0] = (unsigned int)code;
            return 1;
        }
        if (length > 0)
            end = (unsigned int)(start + length);
    }
    return 0;
}

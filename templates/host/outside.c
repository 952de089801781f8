//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Zeros in D outside the groups, on the host: in its rows, or if the groups split these in columns
** of all rows, before the first group, between two, and after the last.
**
**   d  [m, n], elements of d_bytes; bytes between rows are not written
*/
//$ include "common/sizes.c"

void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    const int by_rows = ragged == 1; /* COUPLED: axes */
    const unsigned int all = (unsigned int)(by_rows ? m : n);
    unsigned int end = 0; /* of the groups so far */

    //$ include "common/noop.c"
    /* A group of no length after the last one closes the last gap. */
    for (int group = 0; group <= groups; group++) {
        unsigned int start = all, length = 0;

        if (group < groups) {
            length = cut_to_rows(group_length(first_dims, offsets, sizes_bytes, group), all);
            start = offsets ? cut_to_rows(size_at(offsets, sizes_bytes, group), all) : end;
            if (length == 0)
                continue;
        }
        for (long long row = by_rows ? end : 0; row < (by_rows ? (long long)start : m); row++) {
            const long long column = by_rows ? 0 : end;
            const long long width = by_rows ? n : (long long)start - end;

            if (row % workers == worker && width > 0)
                __builtin_memset((char *)d + (row * d_stride + column) * d_bytes, 0,
                                 (unsigned long)(width * d_bytes));
        }
        length = length > all - start ? all - start : length;
        end = start + length > end ? start + length : end;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* grow.h: arrays that get one more row at a time. */
#pragma once

#include <stdlib.h>

/* Room for a row after the `count` there are, each of `size` bytes: the array
   is full where the count is 0 or a power of two, and may move then. NULL:
   host memory ran out, and the array stays. */
static inline void *qn_grow(void *rows, int count, size_t size)
{
    if (count & (count - 1))
        return rows;
    return realloc(rows, (count ? 2 * (size_t)count : 1) * size);
}

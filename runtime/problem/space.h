/* SPDX-License-Identifier: Apache-2.0 */
/*
** space.h: lay out a workspace, or another buffer of several slices.
*/
#ifndef QUERN_PROBLEM_SPACE_H
#define QUERN_PROBLEM_SPACE_H

#include <stddef.h>
#include <stdint.h>

/*
** The offset of the next slice: `*used` bytes come before it, and with it
** `*used` becomes their end, a multiple of 256. If no size_t holds the end it
** stays SIZE_MAX, which no caller can provide.
*/
static inline size_t qn_space_add(size_t *used, size_t bytes)
{
    const size_t at = *used;

    if (__builtin_add_overflow(at, bytes, used) || *used > SIZE_MAX - 255)
        *used = SIZE_MAX;
    else
        *used = (*used + 255) / 256 * 256;
    return at;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h: how many rows each group has. */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>

/*
** Draw the sizes of `groups` groups, `total` rows in all:
**
**   even   as equal as can be         zipf   weights 1/(i+1)
**   mild   weights from 0.7 to 1.3    skew   the same, shuffled, and one group
**   one    all rows in one group             empty where there are 8 or more
**   LIST   integers with commas        @FILE  integers in a file, by commas or
**                                            blanks; "#" starts a comment
**
** "" is even. A list may leave rows over, which then belong to no group.
** The same seed gives the same sizes on any machine. 0; or 1 with a sentence
** in `why`.
*/
int qn_sizes_draw(const char *split, int groups, int64_t total, uint64_t seed,
                  int64_t *sizes, char *why, size_t why_size);

/* The sum of the integers in a file such as split=@FILE names. 0; or 1 with a
   sentence. */
int qn_sizes_sum(const char *path, int64_t *sum, char *why, size_t why_size);

/* Rows per group from a CSV of routed tokens, one token in each line: the
   columns expert0, expert1, ... name the groups it goes to. Sets the sum of
   the sizes. 0; or 1 with a sentence that names file and line. */
int qn_sizes_routes(const char *path, int groups, int64_t *sizes,
                    int64_t *total, char *why, size_t why_size);

/* Shrink sizes so that they add up to `total`, in the same proportions. */
void qn_sizes_scale(int64_t *sizes, int groups, int64_t total);

/* The least, the median and the largest size. */
struct qn_sizes_range {
    int64_t min, median, max;
};
struct qn_sizes_range qn_sizes_range(const int64_t *sizes, int groups);

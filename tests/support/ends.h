/* SPDX-License-Identifier: Apache-2.0 */
/*
** ends.h: one block of a quantized A or B with a scale from the end of its
** type. The rows or columns of D that the block counts for become NaN, are no
** longer finite, or are the same as without the block; no other bit changes.
**
** Shared by the host tests and the GPU suite.
*/
#pragma once

#include "support/case.h"
#include "internal.h"

/* The expected D. */
enum qt_outcome { QT_IS_NAN, QT_IS_LARGE, QT_IS_WITHOUT };

struct qt_end {
    int type; /* enum quern_type, of the scale */
    unsigned char code;
    enum qt_outcome outcome;
};
extern const struct qt_end qt_ends[];
extern const int qt_nends;

/* A block: its codes in lines that are `pitch` bytes apart, and its scale. */
struct qt_block {
    int role;    /* QT_A or QT_B */
    int64_t row; /* of the operand, the first of the block: in group 0 */
    int64_t lines, pitch;
    int64_t column, columns; /* of D, for a block of B */
    size_t bytes;            /* of codes in a line */
    unsigned char *codes, *scale;
    int none;  /* a byte of codes that stand for 0 */
    int exact; /* sums are scaled, not values, or the block has one value for an
                  element of D: the largest scale of one that is small enough
                  gives a number */
};

/* The scales of A or B, which the case's fprop or dgrad multiplies values
   with; NULL where it has none, or none of blocks that are row by row. */
const struct qn_scaling *qt_ends_scaling(const struct qt_case *, int role);

/* A block of the first group, which has more than 3 rows, and of more than one
   along k. */
void qt_ends_find(const struct qt_case *, const struct qt_data *data, int role,
                  struct qt_block *);

/* Let all codes of the block stand for 0; `kept` has lines * bytes for the old
   ones. Put them back. */
void qt_ends_clear(const struct qt_block *, unsigned char *kept);
void qt_ends_restore(const struct qt_block *, const unsigned char *kept);

/* D before, with the block's other scale, and without the block's codes: 1, or
   where it is wrong. */
int qt_ends_right(const struct qt_case *, const struct qt_block *,
                  const void *before, const void *after, const void *without,
                  enum qt_outcome, char *text, size_t size);

/* SPDX-License-Identifier: Apache-2.0 */
/* bad_sizes.c: sizes that break a rule, and the group that must be blamed. */
#include "support/case.h"

#include <string.h>

/* Six groups of 16 rows. With lengths only the groups start at 0, 16, 32, 48,
   64, 80; otherwise at 5 and, with both arrays, two rows apart. There are 120
   rows along the ragged axis, which the names call m. */
const struct qt_bad_size qt_bad_sizes[] = {
    /* name, form, in_offsets, index, value, past_end, only_i64, group */
    {"a length of -1", QT_FIRST, 0, 2, -1, 0, 0, 2},
    {"the first length -1", QT_FIRST, 0, 0, -1, 0, 0, 0},
    {"the last length -1", QT_FIRST, 0, 5, -1, 0, 0, 5},
    {"a length of INT_MIN", QT_FIRST, 0, 3, INT32_MIN, 0, 0, 3},
    {"a length of INT_MAX", QT_FIRST, 0, 3, INT32_MAX, 0, 0, 3},
    {"the sum past m", QT_FIRST, 0, 4, 60, 0, 0, 4},
    {"the sum past m in the last group", QT_FIRST, 0, 5, 41, 0, 0, 5},
    {"a length of m + 1", QT_FIRST, 0, 0, 1, 1, 0, 0},
    {"a length of 2^32 + 3", QT_FIRST, 0, 1, 4294967299, 0, 1, 1},
    {"a length of 2^62", QT_FIRST, 0, 1, (int64_t)1 << 62, 0, 1, 1},
    {"a length of INT64_MAX", QT_FIRST, 0, 2, INT64_MAX, 0, 1, 2},
    {"a length of INT64_MIN", QT_FIRST, 0, 2, INT64_MIN, 0, 1, 2},
    {"a length of -2^32 + 5", QT_FIRST, 0, 2, -4294967291, 0, 1, 2},

    {"a negative first offset", QT_OFFSETS, 1, 0, -3, 0, 0, 0},
    {"a first offset of INT_MIN", QT_OFFSETS, 1, 0, INT32_MIN, 0, 0, 0},
    {"offsets that fall", QT_OFFSETS, 1, 3, 20, 0, 0, 2},
    {"a last offset past m", QT_OFFSETS, 1, 6, 1, 1, 0, 5},
    {"an inner offset past m", QT_OFFSETS, 1, 4, 7, 1, 0, 3},
    {"an offset of INT_MAX", QT_OFFSETS, 1, 2, INT32_MAX, 0, 0, 1},
    {"an offset of 2^32 + 21", QT_OFFSETS, 1, 1, 4294967317, 0, 1, 0},
    {"an offset of 2^62", QT_OFFSETS, 1, 5, (int64_t)1 << 62, 0, 1, 4},
    {"a first offset of INT64_MIN", QT_OFFSETS, 1, 0, INT64_MIN, 0, 1, 0},

    {"groups that overlap", QT_BOTH, 1, 3, 42, 0, 0, 3},
    {"two groups at one offset", QT_BOTH, 1, 1, 5, 0, 0, 1},
    {"a length into the next group", QT_BOTH, 0, 1, 19, 0, 0, 2},
    {"a negative length with offsets", QT_BOTH, 0, 4, -16, 0, 0, 4},
    {"a negative offset with lengths", QT_BOTH, 1, 0, -16, 0, 0, 0},
    {"the last group past m", QT_BOTH, 1, 5, -15, 1, 0, 5},
    {"the last length past m", QT_BOTH, 0, 5, 26, 0, 0, 5},
    {"an offset of INT_MAX with lengths", QT_BOTH, 1, 5, INT32_MAX, 0, 0, 5},
    {"an offset of 2^62 with lengths", QT_BOTH, 1, 5, (int64_t)1 << 62, 0, 1,
     5},
    {"a sum beyond int64", QT_BOTH, 1, 5, INT64_MAX - 3, 0, 1, 5},
};
const int qt_nbad_sizes = sizeof qt_bad_sizes / sizeof qt_bad_sizes[0];

/* The lengths are no multiples of any tile, so that every kernel has partial
   ones near the end of the buffers. */
void qt_bad_size_case(struct qt_case *c, const struct qt_bad_size *bad_size,
                      int sizes_type)
{
    int gap = bad_size->form == QT_BOTH ? 2 : 0;

    c->what = bad_size->name;
    c->groups = 6;
    c->m = c->ragged == QUERN_AXIS_N ? 136 : 72;
    c->n = 136;
    c->k = 72;
    *qt_axis(c, c->ragged) = 120;
    c->sizes_type = sizes_type;
    c->form = bad_size->form;
    c->fill = QT_INTEGER;
    c->seed = 77;
    for (int g = 0; g < c->groups; g++) {
        c->start[g] = (bad_size->form == QT_FIRST ? 0 : 5) + g * (16 + gap);
        c->length[g] = 16;
    }
    c->start[c->groups] = c->start[c->groups - 1] + 16;
}

void qt_bad_size_apply(const struct qt_case *c,
                       const struct qt_bad_size *bad_size, void *first,
                       void *offsets)
{
    int64_t value =
        bad_size->value + (bad_size->past_end ? qt_length(c, c->ragged) : 0);

    qt_sizes_set(bad_size->in_offsets ? offsets : first, c->sizes_type,
                 bad_size->index, value);
}

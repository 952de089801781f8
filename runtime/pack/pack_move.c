/* SPDX-License-Identifier: Apache-2.0 */
/* pack_move.c: elements from one layout into another, and back. */
#include "pack/pack.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int64_t address(const struct qn_pack_axis *axis, int64_t i)
{
    const int64_t in = i % axis->unit;

    return i / axis->unit * axis->outer +
           (axis->order ? axis->order[in] : in) * axis->inner;
}

/* Little-endian elements of 4 to 32 bits; the first of two in a byte is its
   lower half. */
static inline uint32_t get(const unsigned char *from, int64_t at, int bits)
{
    const unsigned char *p = from + at * (bits / 8);

    switch (bits) {
    case 4:
        return from[at >> 1] >> (at & 1) * 4 & 15;
    case 8:
        return p[0];
    case 16:
        return p[0] | (uint32_t)p[1] << 8;
    default:
        return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
               (uint32_t)p[3] << 24;
    }
}

static inline void put(unsigned char *to, int64_t at, int bits, uint32_t value)
{
    unsigned char *p = to + at * (bits / 8);
    const int shift = (int)(at & 1) * 4;

    if (bits == 4) {
        p = to + (at >> 1);
        *p = (unsigned char)((*p & ~(15 << shift)) | (value & 15) << shift);
        return;
    }
    for (int i = 0; i < bits / 8; i++)
        p[i] = (unsigned char)(value >> 8 * i);
}

/* Are the elements of a row next to each other? */
static int is_plain(const struct qn_pack_axis *columns)
{
    return columns->unit == 1 && columns->outer == 1;
}

/* Rows as bytes. */
static int move_rows(const struct qn_pack_part *part, unsigned char *source,
                     unsigned char *target, int back)
{
    const int64_t bits = part->bits;

    if (!is_plain(&part->source.columns) || !is_plain(&part->target.columns) ||
        part->flip || part->add || part->target_bits ||
        part->columns * bits % 8 || part->source.rows.outer * bits % 8 ||
        part->target.rows.outer * bits % 8 || part->target_at * bits % 8 ||
        part->source.rows.unit != 1 || part->target.rows.unit != 1)
        return 0;
    for (int64_t i = 0; i < part->rows; i++) {
        unsigned char *from = source + i * part->source.rows.outer * bits / 8;
        unsigned char *to =
            target + (part->target_at + i * part->target.rows.outer) * bits / 8;

        memcpy(back ? from : to, back ? to : from,
               (size_t)(part->columns * bits / 8));
    }
    return 1;
}

enum { BLOCK = 16 }; /* rows: words of a cache line in transposed tensors */

/* Elements of up to BLOCK rows whose addresses are in `rows`, as those of all
   columns are in `columns`: the source's, the target's, and so on. */
static inline __attribute__((always_inline)) void
move_block(const struct qn_pack_part *part, unsigned char *source,
           unsigned char *target, const int64_t *rows, int count,
           const int64_t *columns, int from, int to, int shift, int back)
{
    for (int64_t j = 0; j < part->columns; j++)
        for (int i = 0; i < count; i++) {
            const int64_t s = rows[2 * i] + columns[2 * j];
            const int64_t t = rows[2 * i + 1] + columns[2 * j + 1];

            if (back)
                put(source, s, from,
                    ((get(target, t, to) - part->add) ^ part->flip) >> shift);
            else
                put(target, t, to,
                    (get(source, s, from) << shift ^ part->flip) + part->add);
        }
}

/* The widths as constants. */
static void move_any(const struct qn_pack_part *part, unsigned char *source,
                     unsigned char *target, const int64_t *rows, int count,
                     const int64_t *columns, int back)
{
#define MOVE(from, to, shift)                                                  \
    (back ? move_block(part, source, target, rows, count, columns, from, to,   \
                       shift, 1)                                               \
          : move_block(part, source, target, rows, count, columns, from, to,   \
                       shift, 0))
    if (part->target_bits == 32) /* bf16 is the upper half of f32 */
        MOVE(16, 32, 16);
    else if (part->target_bits == 16) /* zero points */
        MOVE(4, 16, 0);
    else if (part->bits == 4)
        MOVE(4, 4, 0);
    else if (part->bits == 8)
        MOVE(8, 8, 0);
    else if (part->bits == 16)
        MOVE(16, 16, 0);
    else
        MOVE(32, 32, 0);
#undef MOVE
}

static void move_elements(const struct qn_pack_part *part,
                          unsigned char *source, unsigned char *target,
                          int back, const int64_t *columns)
{
    int64_t rows[2 * BLOCK];

    for (int64_t first = 0; first < part->rows; first += BLOCK) {
        int count = 0;

        for (; count < BLOCK && first + count < part->rows; count++) {
            rows[2 * count] = address(&part->source.rows, first + count);
            rows[2 * count + 1] =
                part->target_at + address(&part->target.rows, first + count);
        }
        move_any(part, source, target, rows, count, columns, back);
    }
}

int qn_pack_move(const struct qn_pack_part *part, unsigned char *source,
                 unsigned char *target, int back)
{
    int64_t *columns;

    if (move_rows(part, source, target, back))
        return QUERN_OK;
    columns = malloc((size_t)part->columns * 2 * sizeof *columns + 1);
    if (!columns)
        return qn_error_memory();
    for (int64_t j = 0; j < part->columns; j++) {
        columns[2 * j] = address(&part->source.columns, j);
        columns[2 * j + 1] = address(&part->target.columns, j);
    }
    move_elements(part, source, target, back, columns);
    free(columns);
    return QUERN_OK;
}

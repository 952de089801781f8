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
        *p = (unsigned char)((*p & ~(15 << shift)) | value << shift);
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
        part->flip || part->widened || part->columns * bits % 8 ||
        part->source.rows.outer * bits % 8 ||
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

/* One by one; `columns` has the addresses of both sides' columns. */
static void move_elements(const struct qn_pack_part *part,
                          unsigned char *source, unsigned char *target,
                          int back, const int64_t *columns)
{
    const int from = part->widened ? 16 : part->bits, to = part->bits;

    for (int64_t i = 0; i < part->rows; i++) {
        const int64_t s = address(&part->source.rows, i);
        const int64_t t = part->target_at + address(&part->target.rows, i);

        for (int64_t j = 0; j < part->columns; j++) {
            const int64_t at = s + columns[2 * j],
                          there = t + columns[2 * j + 1];
            uint32_t value;

            if (back) {
                value = get(target, there, to) ^ part->flip;
                put(source, at, from, value >> (to - from));
            } else {
                value = get(source, at, from) << (to - from);
                put(target, there, to, value ^ part->flip);
            }
        }
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

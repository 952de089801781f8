//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A matrix of scales, or the part of one that belongs to a group. Those past the counts are
** padding, up to the limits, and zero.
*/
enum {
    PAD_ROWS = $(scale.pad_rows),
    PAD_COLUMNS = $(scale.pad_columns)
};

struct scales {
    long long base;       /* where the matrix begins */
    int rows, columns;    /* of the matrix, without padding */
    int i, j;             /* of the group's first scale in it */
    int count_i, count_j; /* scales of the group */
    int limit_i, limit_j;
};

FN long long padded(long long length, int multiple)
{
    return (length + multiple - 1) / multiple * multiple;
}

/* The address of the group's scale (i, j). */
FN long long scale_at(const struct scales *s, int i, int j)
{
    const long long row = s->i + i, column = s->j + j;
//$ if scale.order == "rows" then

    return s->base + row * padded(s->columns, PAD_COLUMNS) + column;
//$ elseif scale.order == "columns" then

    return s->base + column * padded(s->rows, PAD_ROWS) + row;
//$ else
    const long long tiles = padded(s->columns, PAD_COLUMNS) / 4;

    return s->base + (row / 128 * tiles + column / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 +
           column % 4;
//$ end
}

/* All of a matrix, with its padding. */
FN long long scales_of(long long rows, long long columns)
{
    return padded(rows, PAD_ROWS) * padded(columns, PAD_COLUMNS);
}

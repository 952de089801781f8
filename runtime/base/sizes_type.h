/* SPDX-License-Identifier: Apache-2.0 */
/* sizes_type.h: how arrays of group sizes are given: int32 or int64, and
   offsets as [G + 1] starts or, with QN_SIZES_ENDS, as [G] inclusive sums. */
#pragma once

#include "internal.h"

/* Bytes of an entry. */
static inline size_t qn_sizes_entry(int type)
{
    return (type & ~QN_SIZES_ENDS) == QUERN_I64 ? 8 : 4;
}

/* The value of kernels' parameter sizes_bytes. */
static inline int qn_sizes_bytes(int type)
{
    const int bytes = (int)qn_sizes_entry(type);

    return type & QN_SIZES_ENDS ? -bytes : bytes;
}

/* The operand that `offsets` is. */
static inline const char *qn_sizes_operand(int type)
{
    return type & QN_SIZES_ENDS ? "ends" : "starts";
}

/* Entries of `offsets`. */
static inline size_t qn_sizes_count(int type, int groups)
{
    return (size_t)groups + !(type & QN_SIZES_ENDS);
}

/* Entry i of lengths or, counted as of starts, of offsets, in host memory. */
static inline int64_t qn_sizes_at(const void *sizes, int type, int i)
{
    if (type & QN_SIZES_ENDS && --i < 0)
        return 0;
    return qn_sizes_entry(type) == 8 ? ((const int64_t *)sizes)[i]
                                     : ((const int32_t *)sizes)[i];
}

/* Which groups have rows, of sizes in host memory, valid or not. */
static inline void qn_sizes_rows(const void *lengths, const void *offsets,
                                 int type, int groups, unsigned char *rows)
{
    for (int i = 0; i < groups; i++)
        rows[i] = lengths   ? qn_sizes_at(lengths, type, i) > 0
                  : offsets ? qn_sizes_at(offsets, type, i + 1) >
                                  qn_sizes_at(offsets, type, i)
                            : 1;
}

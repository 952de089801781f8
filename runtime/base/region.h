/* SPDX-License-Identifier: Apache-2.0 */
/* region.h: the memory of a run, to check that outputs overlap nothing
   else. */
#pragma once

#include "internal.h"

/* Bytes that an argument names. */
struct qn_region {
    const char *name; /* of the argument, as messages have it */
    const void *data; /* NULL: none */
    size_t bytes;
    int written;
    int alike; /* above 0: may be the place of another of the same number;
                  below: may overlap such a one, which the caller checks */
};

/* QUERN_EINVAL names two that overlap, of which at least one is written. */
int qn_region_check(const struct qn_region *list, int count);

/* Matrices by addresses that the host reads. */
struct qn_matrices {
    const char *name; /* of the operand */
    void *const *pointers;
    size_t bytes, alignment; /* of each matrix */
    int written;
    int alike; /* not 0: each may be that of another of the same number */
    int all;   /* those of groups without rows are used, too */
};

/* QUERN_EINVAL names the operand and the first group whose matrix is missing,
   misaligned, or overlaps another, or a region, one of which is written.
   `rows`: [groups], not 0 of groups that have some. */
int qn_region_matrices(const struct qn_matrices *list, int count, int groups,
                       const unsigned char *rows,
                       const struct qn_region *regions, int nregions);

/* Do two share a byte? */
int qn_region_meets(const struct qn_region *a, const struct qn_region *b);

/* SPDX-License-Identifier: Apache-2.0 */
/* region.h: the memory of a run, to see that what is written is nothing
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

/* Do two share a byte? */
int qn_region_meets(const struct qn_region *a, const struct qn_region *b);

/* SPDX-License-Identifier: Apache-2.0 */
/* region.c: the memory of a run, to see that what is written is nothing
   else. */
#include "base/region.h"
#include "base/error.h"

#include <stdint.h>

/* Unsigned differences cannot overflow, whatever the addresses. */
int qn_region_meets(const struct qn_region *a, const struct qn_region *b)
{
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;

    return x && y && a->bytes && b->bytes &&
           (x < y ? y - x < a->bytes : x - y < b->bytes);
}

/* Two names of one place, which hold the same. */
static int are_same(const struct qn_region *a, const struct qn_region *b)
{
    return a->alike && a->alike == b->alike &&
           (a->alike < 0 || a->data == b->data);
}

int qn_region_check(const struct qn_region *list, int count)
{
    for (int i = 0; i < count; i++) {
        if (!list[i].written || !list[i].data)
            continue;
        for (int j = 0; j < count; j++)
            if (j != i && !are_same(&list[i], &list[j]) &&
                qn_region_meets(&list[i], &list[j]))
                return qn_error_set(QUERN_EINVAL, "%s overlaps %s",
                                    list[i].name, list[j].name);
    }
    return QUERN_OK;
}

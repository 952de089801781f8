/* SPDX-License-Identifier: Apache-2.0 */
/* sorted.c: points by name, once they are sorted. */
#include "grid/grid.h"

#include <string.h>

int qg_sorted_first(const struct qg *q, int count, const char *text,
                    size_t length)
{
    int low = 0;

    while (low < count) {
        const int middle = (low + count) / 2;

        if (strncmp(q->sorted[middle]->kernel.name, text, length) < 0)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

struct qg_point *qg_sorted_find(const struct qg *q, int count, const char *name)
{
    const int i = qg_sorted_first(q, count, name, strlen(name) + 1);

    return i < count && !strcmp(q->sorted[i]->kernel.name, name) ? q->sorted[i]
                                                                 : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* shipped_mark.c: which of the kernels are shipped, once all points exist. */
#include "grid/grid.h"
#include "lua/base.h"

#include <string.h>

/* Shipped kernels must exist: a name that has gone stale would drop a kernel
   from the build without a word. */
static void ship(struct qg *q, const struct qg_shipped *shipped)
{
    struct qg_point *point = qg_sorted_find(q, q->npoints, shipped->name);
    struct qg_nearest nearest;

    if (!point) {
        qg_nearest_start(&nearest, shipped->name);
        for (int i = 0; i < q->npoints; i++)
            qg_nearest_try(&nearest, q->sorted[i]->kernel.name);
        qg_diag_note(q, shipped->location, QG_E_SHIPPED_UNKNOWN, shipped->name,
                     qg_nearest_hint(&nearest, "quern list prints them", ""));
    } else if (point->reason) {
        qg_diag_note(q, shipped->location, QG_E_SHIPPED_REJECTED, shipped->name,
                     point->reason);
    } else {
        point->kernel.shipped = 1;
    }
}

void qg_shipped_mark(struct qg *q)
{
    int count = 0;

    for (const struct qg_shipped *s = q->shipped; s; s = s->next) {
        for (const struct qg_shipped *t = q->shipped; t != s; t = t->next)
            if (!strcmp(s->name, t->name)) {
                qg_diag_note(q, s->location, QG_E_SHIPPED_TWICE, s->name,
                             qg_files_print(q, t->location));
                break;
            }
        if (++count > QG_MAX_SHIPPED) {
            qg_diag_note(q, s->location, QG_E_SHIPPED_COUNT, QG_MAX_SHIPPED);
            return;
        }
        ship(q, s);
    }
}

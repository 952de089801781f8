/* SPDX-License-Identifier: Apache-2.0 */
/* evidence_mark.c: the evidence of each kernel, once all points exist. Names
   that no kernel has are left to bench/evidence.py: it needs the kernels that
   there are. */
#include "grid/grid.h"

#include <string.h>

/* The first of the sorted points whose name is not before the text. */
static int find_first(const struct qg *q, const char *text, size_t length)
{
    int low = 0, high = q->npoints;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (strncmp(q->sorted[middle]->kernel.name, text, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void mark(struct qg *q, const struct qg_evidence *evidence)
{
    const size_t whole = strlen(evidence->name) + 1;
    const int several = whole > 1 && evidence->name[whole - 2] == '*';
    const size_t length = several ? whole - 2 : whole;

    for (int i = find_first(q, evidence->name, length); i < q->npoints; i++) {
        struct qn_kernel *kernel = &q->sorted[i]->kernel;

        if (strncmp(kernel->name, evidence->name, length) != 0)
            return;
        kernel->ran |= (unsigned short)evidence->ran;
        kernel->interpreted |= !evidence->ran;
    }
}

void qg_evidence_mark(struct qg *q)
{
    for (const struct qg_evidence *e = q->evidence; e; e = e->next)
        mark(q, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* evidence_mark.c: the evidence of each kernel, once all points exist. Names
   that no kernel has are left to bench/evidence.py: it needs the kernels that
   there are. */
#include "grid/grid.h"

#include <string.h>

static void mark(struct qg *q, const struct qg_evidence *evidence)
{
    const size_t whole = strlen(evidence->name) + 1;
    const int several = whole > 1 && evidence->name[whole - 2] == '*';
    const size_t length = several ? whole - 2 : whole;

    for (int i = qg_sorted_first(q, q->npoints, evidence->name, length);
         i < q->npoints; i++) {
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

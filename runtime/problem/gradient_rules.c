/* SPDX-License-Identifier: Apache-2.0 */
/*
** gradient_rules.c: dgrad that goes back through an activation.
**
** Each tile knows a part of dbias and of dprob, and no tile all of it. So that
** the sums have one order for any tiles, parts are those of 32 rows and of
** 64 columns: they are in the workspace, after the part of all products there,
** until a launch for each kind adds them up.
**
**     dbias   [strips of 32 rows][columns of D]   as a cast leaves them
**     dprob   [columns of the product / 64][m]
*/
#include "problem/gradient_rules.h"
#include "problem/geometry.h"
#include "problem/host_sizes_rules.h"
#include "problem/quantize.h"
#include "problem/problem.h"

enum { COLUMNS = 64 }; /* COUPLED: row partials */

int64_t qn_gradient_width(const struct qn_problem *p)
{
    return qn_geometry_halves(p) ? 2 * p->n : p->n;
}

/* Without an activation dbias is of the tensor that a run quantizes. */
size_t qn_gradient_dbias(const struct qn_problem *p)
{
    const int64_t width = qn_geometry_backward(p) ? qn_gradient_width(p) : p->k;

    return (size_t)p->groups * (size_t)width * sizeof(float);
}

/* Strips of 32 rows in tiles of 128, which each group begins anew. */
static int64_t strips_of(const struct qn_problem *p)
{
    return (p->m + 127ll * p->groups) / 128 * 4;
}

void qn_gradient_lay_out(const struct qn_problem *p,
                         struct qn_gradient_space *s)
{
    const int dbias = p->dbias && qn_geometry_backward(p);
    const int64_t strips = dbias ? strips_of(p) : 0;
    const int64_t rows = p->dprob ? p->m : 0;

    s->end = qn_host_size_end(p);
    s->partials = qn_space_add(
        &s->end, (size_t)(strips * qn_gradient_width(p)) * sizeof(float));
    s->row_partials = qn_space_add(
        &s->end,
        (size_t)(qn_quantize_ceil_div(p->n, COLUMNS) * rows) * sizeof(float));
}

size_t qn_gradient_end(const struct qn_problem *p)
{
    struct qn_gradient_space s;

    qn_gradient_lay_out(p, &s);
    return s.end;
}

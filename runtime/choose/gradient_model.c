/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_model.c: a product that goes back through an activation, compared
   with a plain product and a cast. */
#include "base/context.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/session.h"
#include "problem/gradient_rules.h"

#include <string.h>

/* The cast moves dh, P and D, and for dprob dh and P again; besides, there is a
   launch for each that adds up sums. All these weigh against a tile's last
   step, which is longer. */

static double cast_cycles(const struct qn_device *device,
                          const struct qn_problem *p)
{
    const double rows = (double)p->m,
                 read = rows * (double)(p->n + qn_gradient_width(p));
    const double bytes = qn_type_bits(p->d_type) / 8.0;
    double moved = (read + rows * (double)qn_gradient_width(p)) * bytes;
    int launches = 1 + (p->dbias != 0);

    if (p->dprob) {
        moved += read * bytes;
        launches++;
    }
    return qn_model_cast(device, moved, launches);
}

static double sum_cycles(const struct qn_device *device,
                         const struct qn_problem *p)
{
    struct qn_gradient_space s;
    int launches = (p->dbias != 0) + p->dprob;

    qn_gradient_lay_out(p, &s);
    return qn_model_cast(device, 2 * (double)(s.end - s.partials), launches);
}

int qn_gradient_compare(const struct qn_session *s, const struct qn_problem *p,
                        const struct qn_problem *plain,
                        struct qn_gradient_figures *f)
{
    int apart = 0, code;

    memset(f, 0, sizeof *f);
    code = qn_select_cycles(s->ctx, &s->demand, p, &f->served, &f->cycles);
    if (!code)
        code = qn_select_cycles(s->ctx, &s->demand, plain, &apart, &f->product);
    f->cycles += sum_cycles(&s->device, p);
    f->cast = cast_cycles(&s->device, p);
    f->better = f->served && (!qn_session_gpu(s) || !apart ||
                              f->cycles < f->product + f->cast);
    return code;
}

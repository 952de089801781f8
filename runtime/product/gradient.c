/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c: the launches after a dgrad that goes back through an
   activation. */
#include "choose/session.h"
#include "problem/gradient_rules.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <string.h>

/* As a cast's whose sums they would be. */
static void find_quantization(const struct qn_problem *p,
                              struct qn_quantization *q)
{
    *q = (struct qn_quantization){.work = QUERN_QUANTIZE,
                                  .of = QN_DY,
                                  .type = p->d_type,
                                  .copies = QUERN_ROWWISE,
                                  .groups = p->groups,
                                  .m = p->m,
                                  .k = qn_gradient_width(p)};
    memcpy(q->recipe, p->recipe, sizeof q->recipe);
}

int qn_gradient_plan(struct qn_plan *plan, struct qn_session *s)
{
    const struct qn_problem *p = &plan->problem;
    struct qn_quantize_plan *sums;
    struct qn_quantization q;
    int ops[2], count = 0, code;

    if (p->dbias && qn_geometry_backward(p))
        ops[count++] = QN_SUM;
    if (p->dprob)
        ops[count++] = QN_SUM_ROWS;
    if (!count)
        return QUERN_OK;
    find_quantization(p, &q);
    code = qn_quantize_steps(s, &q, plan->backend, ops, count, &sums);
    for (int i = 0; !code && i < count; i++) {
        struct qn_launch *launch = qn_launch_add(plan, QN_WORK_SUM);

        launch->cast = sums;
        launch->index = i;
    }
    return code;
}

void qn_gradient_set(const struct qn_problem *p, const struct qn_args *args,
                     struct qn_values *v)
{
    char *const base = args->workspace;
    struct qn_gradient_space s;

    if (!qn_geometry_backward(p))
        return; /* other kernels know sums of their own by these names */
    qn_gradient_lay_out(p, &s);
    v->partials = p->dbias ? (float *)(void *)(base + s.partials) : NULL;
    v->row_partials =
        p->dprob ? (float *)(void *)(base + s.row_partials) : NULL;
    v->dbias = args->dbias;
    v->dbias_add = p->dbias == QUERN_DBIAS_ADD;
    v->dprob = args->dprob;
}

int qn_gradient_sum(struct qn_frame *frame, const struct qn_launch *launch)
{
    const struct qn_problem *p =
        launch->product ? &launch->product->problem : &frame->plan->problem;
    const struct qn_quantize_plan *sums = launch->cast;
    const int columns = sums->steps[launch->index].kernel->op == QN_SUM;
    struct qn_values v;

    qn_value_copy(&v, &frame->values);
    v.k = (int)(columns ? qn_gradient_width(p) : p->n);
    return qn_quantize_step_run(sums, launch->index, &v, frame->stream);
}

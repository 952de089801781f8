/* SPDX-License-Identifier: Apache-2.0 */
/*
** gradient.c: the launches after a dgrad that goes back through an activation.
*/
#include "product/gradient.h"
#include "choose/session.h"
#include "problem/gradient_rules.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <string.h>

/* As a cast's whose sums they would be. */
static void find_quantization(const struct quern_problem *p,
                              struct quern_quantization *q)
{
    *q = (struct quern_quantization){.work = QUERN_QUANTIZE,
                                     .of = QUERN_DY,
                                     .type = p->d_type,
                                     .copies = QUERN_ROW,
                                     .groups = p->groups,
                                     .m = p->m,
                                     .k = qn_gradient_width(p)};
    memcpy(q->recipe, p->recipe, sizeof q->recipe);
}

int qn_gradient_plan(struct quern_plan *plan, struct qn_session *s)
{
    const struct quern_problem *p = &plan->problem;
    struct quern_quantization q;
    int ops[2], count = 0;

    if (p->dbias && qn_geometry_back(p))
        ops[count++] = QN_SUM;
    if (p->dprob)
        ops[count++] = QN_SUM_ROWS;
    if (!count)
        return QUERN_OK;
    find_quantization(p, &q);
    return qn_quantize_steps(s, &q, plan->backend, ops, count, &plan->sums);
}

void qn_gradient_plan_free(struct quern_plan *plan)
{
    quern_quantize_plan_free(plan->sums);
}

void qn_gradient_set(const struct quern_plan *plan,
                     const struct quern_args *args, struct qn_values *v)
{
    char *const base = args->workspace;
    struct qn_gradient_space s;

    if (!qn_geometry_back(&plan->problem))
        return; /* other kernels know sums of their own by these names */
    qn_gradient_lay_out(&plan->problem, &s);
    v->partials =
        plan->problem.dbias ? (float *)(void *)(base + s.partials) : NULL;
    v->row_partials =
        plan->problem.dprob ? (float *)(void *)(base + s.row_partials) : NULL;
    v->dbias = args->dbias;
    v->dbias_add = plan->problem.dbias == QUERN_DBIAS_ADD;
    v->dprob = args->dprob;
}

int qn_gradient_run(const struct quern_plan *plan,
                    const struct qn_values *values, void *stream)
{
    const struct quern_problem *p = &plan->problem;
    struct qn_values v;
    int code = QUERN_OK;

    if (!plan->sums)
        return QUERN_OK;
    qn_value_copy(&v, values);
    for (int i = 0; i < plan->sums->nsteps && !code; i++) {
        int columns = plan->sums->steps[i].kernel->op == QN_SUM;

        v.k = (int)(columns ? qn_gradient_width(p) : p->n);
        code = qn_quantize_step_run(plan->sums, i, &v, stream);
    }
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c: the two products with a product's adapters. */
#include "problem/lora_rules.h"
#include "base/error.h"
#include "choose/session.h"
#include "product/args.h"
#include "product/frame.h"
#include "product/plan.h"

#include <string.h>

/* ---------------------------------------------------------------- planning */

/* A product of 16-bit values, for which nothing is to be named or tuned. */
static int add(struct qn_plan *plan, const struct qn_session *s,
               const struct qn_problem *p, int work, const char *what)
{
    struct qn_plan_options options = s->options;
    const int first = plan->nlaunches;
    struct qn_plan *product;
    int code;

    options.kernel = NULL;
    options.tune_ms = 0;
    code = qn_plan_inner(s, p, &options, qn_plan_inside, &product);
    if (code) {
        qn_error_add("  in the product %s", what);
        return code;
    }
    qn_launch_absorb(plan, product, QN_OPERANDS_GIVEN, QN_FLAG_CALLER);
    for (int i = first; i < plan->nlaunches; i++)
        plan->launches[i].work = work;
    return QUERN_OK;
}

int qn_lora_add_up(struct qn_plan *plan, const struct qn_session *s)
{
    struct qn_problem up;

    qn_lora_up(s->ctx, s->problem, &up);
    return add(plan, s, &up, QN_WORK_UP, "of the adapters");
}

int qn_lora_add_down(struct qn_plan *plan, const struct qn_session *s)
{
    struct qn_problem down;

    qn_lora_down(s->ctx, s->problem, &down);
    return add(plan, s, &down, QN_WORK_DOWN, "that makes lora_t");
}

/* ----------------------------------------------------------------- running */

/* Rows of all groups, split as the run says. */
static void set_sizes(const struct qn_frame *f, struct qn_tensor *t)
{
    t->first_dims = f->lengths;
    t->last_dims = NULL;
    t->offsets = f->offsets;
    t->sizes_type = f->sizes_type;
}

void qn_lora_args(const struct qn_frame *f, const struct qn_launch *launch,
                  struct qn_args *args)
{
    const struct qn_args *given = f->args;
    const struct qn_problem *p = &f->plan->problem;
    const int down = launch->work == QN_WORK_DOWN;

    *args = (struct qn_args){
        .a = down ? given->a : given->lora_t,
        .b = *(down ? qn_lora_down_of(p, given) : qn_lora_up_of(p, given)),
        .d = given->lora_t,
        .alpha = down ? given->lora_scale : given->alpha,
        .scalars = down ? 1 : given->scalars,
        .gather = down ? given->gather : NULL,
        .noop = given->noop,
        .workspace = given->workspace};
    args->d.shape[0] = p->m;
    if (!down) {
        args->a.shape[0] = p->m;
        qn_epilogue_args(f, args);
    }
    set_sizes(f, &args->a);
    set_sizes(f, &args->d);
}

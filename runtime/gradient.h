/*
** gradient.h: dgrad that goes back through an activation: what it leaves behind
** for the gradients of a bias and of the rows' numbers, and who adds that up.
*/
#ifndef QUERN_GRADIENT_H
#define QUERN_GRADIENT_H

#include "select.h"
#include "session.h"

struct quern_plan;
struct qn_values;

/* Where the workspace of such a problem ends; of others where sizes do. */
size_t qn_gradient_end(const struct quern_problem *problem);

/* Bytes of dbias: of D's row for each group, or where there is no activation
   of a row of what a run quantizes. */
size_t qn_gradient_dbias(const struct quern_problem *problem);

/* What the model says of it, and of a plain product with a cast behind it. */
struct qn_gradient_figures {
    int served; /* a kernel goes back through the activation */
    int better; /* and takes less time; without a GPU always */
    double
        cycles; /* of that one, and of launches that add sums up; 0: no GPU */
    double product, cast; /* of the plain product, and of the cast's launches */
};

/* Compare both: `plain` is the problem without its activation. Where there is
   no GPU and none is asked for, `imagined` figures are those of an H200. */
int qn_gradient_compare(struct quern_context *ctx,
                        const struct quern_problem *problem,
                        const struct quern_problem *plain,
                        const struct quern_plan_options *options, int imagined,
                        struct qn_gradient_figures *figures);

/* Append the sums that follow the product, if there are any, with kernels of the
   plan's backend. */
int qn_gradient_plan(struct quern_plan *plan, struct qn_session *session);

/* What the kernels find in the plan's values. */
void qn_gradient_set(const struct quern_plan *plan,
                     const struct quern_args *args, struct qn_values *values);

/* And where partial sums of a problem with an activation of dgrad lie. */
void qn_gradient_place(const struct quern_problem *problem,
                       const struct quern_args *args, struct qn_values *values);

/* Launch one of the sums, in the plan's context; the host runs it at once.
   QUERN_ECUDA. */
struct qn_frame;
struct qn_launch;
int qn_gradient_sum(struct qn_frame *frame, const struct qn_launch *launch);

#endif

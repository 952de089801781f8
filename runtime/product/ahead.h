/* SPDX-License-Identifier: Apache-2.0 */
/*
** ahead.h: plans, runs and explanations of products whose operands become bf16
** before they are multiplied.
*/
#ifndef QUERN_PRODUCT_AHEAD_H
#define QUERN_PRODUCT_AHEAD_H

#include "choose/step.h"

struct qn_ahead_choice;
struct qn_session;
struct qn_text;
struct qn_why_choice;
struct quern_context;
struct quern_plan;
struct quern_quantize_plan;

struct qn_ahead_plan {
    const struct qn_recipe *recipe;
    struct quern_quantize_plan *casts[2]; /* of A and B; NULL: as it is */
    struct quern_plan *product;
    struct qn_step step; /* for factors, sizes and flags, or what looks; none
                            if there is no such thing, or the host computes */
    /* where FP8 or f16 is tried; else, and where the host computes, none */
    const struct qn_recipe *blocks; /* of FP8 */
    struct qn_step encode[2];       /* of A and B, as FP8 */
    struct quern_plan *narrow;
};

/* A plan in a session, whose operands are expanded ahead where that is asked
   for or takes less time; and the same in a session of its own. Errors of
   quern_plan. */
int qn_ahead_make(struct qn_session *session, struct quern_plan **plan);
int qn_ahead_plan(struct quern_context *ctx,
                  const struct quern_problem *problem,
                  const struct quern_plan_options *options,
                  struct quern_plan **plan);

/* Free such a plan; NULL is none. */
void qn_ahead_drop(struct quern_plan *plan);

/* quern_run of such a plan, or of one whose kernel reads the operands. */
int qn_ahead_run_any(const struct quern_plan *plan,
                     const struct quern_args *args, void *stream);

/* What was chosen and why; of `ahead`, which kernels run: *served becomes 0
   where a product has none. */
int qn_ahead_why(struct qn_session *session,
                 const struct qn_ahead_choice *choice, int *served,
                 struct qn_text *text);

/* quern_why of a problem that wants no copies of its result. */
int qn_ahead_explain(struct quern_context *ctx,
                     const struct quern_problem *problem,
                     const struct quern_plan_options *options,
                     struct qn_why_choice *choice, char **text);

#endif

/*
** streamed.h: products that make what they multiply. Where the problem says
** quantize=, a run gets A's numbers and makes its row copy, and if it is wanted
** the column copy, in the product's own launch or in one before it.
*/
#ifndef QUERN_STREAMED_H
#define QUERN_STREAMED_H

#include "quantize.h"
#include "session.h"
#include "text.h"

/* Words of the field `quantize`, as types.h has those of others. */
const char *qn_streamed_name(int quantize);
int qn_streamed_find(const char *name, int *quantize);
const char *qn_streamed_at(int i);

/* How a kernel gets A: enum quern_fusion, but for ANY. */
int qn_streamed_way(const struct qn_kernel *kernel);

/* Is a kernel of this field `quantize` one for such a problem, and is it the
   way that the problem names? */
int qn_streamed_serves(int wanted, const char *quantize);
int qn_streamed_wanted(int wanted, const struct qn_kernel *kernel);

/* All rules on the field `quantize`. QUERN_EINVAL. */
int qn_streamed_problem(const struct quern_problem *problem,
                        const struct qn_recipe *recipe);

/* Does the problem want the sums of what a run quantizes? */
int qn_streamed_sums(const struct quern_problem *problem);

/* Where the workspace of such a problem ends: what makes A has its part behind
   all others. */
size_t qn_streamed_end(const struct quern_problem *problem,
                       const struct qn_recipe *recipe);

/* What such a problem needs besides: numbers and a column copy. Nothing of
   other problems. */
int qn_streamed_describe(struct quern_context *ctx,
                         const struct quern_problem *problem,
                         const struct qn_recipe *recipe,
                         struct quern_description *description);

/* Cycles that a tile of an inline kernel takes at least, and bytes that one
   copies of each value of A. */
double qn_streamed_tile(const struct qn_kernel *kernel, double k);
double qn_streamed_bytes(const struct qn_kernel *kernel);

/* What makes A, added to the cycles of a launch that are known; `rate` is the
   memory's bytes a cycle. Nothing for other problems. */
void qn_streamed_estimate(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double rate,
                          struct qn_figures *figures);

/* Where the best kernel's A is quantized, and what that is counted with. */
void qn_streamed_why(const struct quern_problem *problem,
                     const struct qn_choice *best, struct qn_text *text);

/* What a plan with a kernel needs: rules, or all of a launch before its own.
   Freed with its plan. */
int qn_streamed_plan(struct quern_plan *plan, const struct qn_session *session);
void qn_streamed_plan_free(struct quern_plan *plan);

/* The rules of quern_run on what is quantized and made. QUERN_EINVAL. */
int qn_streamed_check(const struct quern_plan *plan,
                      const struct quern_args *args);

/* The values of a kernel that quantizes on the way. */
void qn_streamed_set(const struct quern_plan *plan,
                     const struct quern_args *args, struct qn_values *values);

/* The launches before the product's, if there are any: a cast, and where none
   sums up what is quantized one that does. `values` say where the groups' sizes
   are. */
int qn_streamed_run(const struct quern_plan *plan,
                    const struct quern_args *args,
                    const struct qn_values *values, void *stream);

#endif

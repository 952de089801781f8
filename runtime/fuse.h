/*
** fuse.h: products that quantize what they multiply. If the problem says
** quantize=, a run gets A's numbers and quantizes them in the product's
** mainloop or in a launch before it, which writes the column copy too if it is
** wanted.
*/
#ifndef QUERN_FUSE_H
#define QUERN_FUSE_H

#include "quantize.h"
#include "session.h"
#include "text.h"

/* How a kernel gets A: enum quern_fusion, but for ANY. */
int qn_fuse_way(const struct qn_kernel *kernel);

/* Is a kernel of this field `quantize` one for such a problem, and is it the
   way that the problem names? */
int qn_fuse_serves(int wanted, const char *quantize);
int qn_fuse_wanted(int wanted, const struct qn_kernel *kernel);

/* All rules on the field `quantize`. QUERN_EINVAL. */
int qn_fuse_problem(const struct quern_problem *problem,
                    const struct qn_recipe *recipe);

/* Does the problem want the sums of what a run quantizes? */
int qn_fuse_sums(const struct quern_problem *problem);

/* The end of the workspace of such a problem: the launches before the product
   have the last part. */
size_t qn_fuse_end(const struct quern_problem *problem,
                   const struct qn_recipe *recipe);

/* What such a problem needs besides: numbers and a column copy. Nothing of
   other problems. */
int qn_fuse_describe(struct quern_context *ctx,
                     const struct quern_problem *problem,
                     const struct qn_recipe *recipe,
                     struct quern_description *description);

/* Cycles that a tile of an inline kernel takes at least, and bytes that one
   copies of each value of A. */
double qn_fuse_tile(const struct qn_kernel *kernel, double k);
double qn_fuse_bytes(const struct qn_kernel *kernel);

/* What makes A, added to the cycles of a launch that are known; `rate` is the
   memory's bytes a cycle. Nothing for other problems. */
void qn_fuse_estimate(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, double rate,
                      struct qn_figures *figures);

/* Say where the best kernel's A is quantized, and at which estimated cost. */
void qn_fuse_why(const struct quern_problem *problem,
                 const struct qn_choice *best, struct qn_text *text);

/* Append the launches that quantize A before the product, to a plan that has its
   kernel. */
int qn_fuse_plan(struct quern_plan *plan, const struct qn_session *session);

/* The rules of quern_run on what is quantized and made. QUERN_EINVAL. */
int qn_fuse_check(const struct quern_plan *plan, const struct quern_args *args);

/* Launch the cast of A, and the sums of A that no cast makes, in the plan's
   context. QUERN_ECUDA. */
struct qn_frame;
struct qn_launch;
int qn_fuse_quantize(struct qn_frame *frame, const struct qn_launch *launch);
int qn_fuse_sum(struct qn_frame *frame, const struct qn_launch *launch);

#endif

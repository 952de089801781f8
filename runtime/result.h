/*
** result.h: a product's result as copies of an x, or of dgrad as copies of a
** dy: D is the row copy, T the other.
**
** Where a kernel makes them they leave the product's own launch. Else a plan is
** of two: the product, whose D are numbers in the workspace, and the cast that
** reads these. Both ways round the result to the type of D before they quantize
** it, so that both make the same bytes of the same sums.
*/
#ifndef QUERN_RESULT_H
#define QUERN_RESULT_H

#include "geometry.h"

struct qn_session;
struct qn_text;
struct quern_plan;

/*
** The quantization of the result that operand `role` is a copy of, and its
** scaling; NULL unless that is D or T and the problem wants copies.
*/
const struct qn_scaling *qn_result_source(const struct quern_problem *problem,
                                          const struct qn_recipe *recipe,
                                          int role,
                                          struct quern_quantization *q);

/* Why the problem, which wants copies, cannot have them; or NULL. */
const char *qn_result_wrong(const struct quern_problem *problem,
                            const struct qn_recipe *recipe);

/* Why no kernel can make them of a tile of results; or NULL. */
const char *qn_result_apart(const struct quern_problem *problem,
                            const struct qn_recipe *recipe);

/* ------------------------------------------------------------ two launches */

/* Where the workspace has what the cast needs, and the result as numbers; the
   product's part comes first. */
struct qn_result_space {
    size_t cast, numbers, end;
};

/* The product without its copies. */
void qn_result_product(const struct quern_problem *problem,
                       struct quern_problem *product);

/* The cast of its result. */
void qn_result_cast(const struct quern_problem *problem,
                    const struct qn_recipe *recipe,
                    struct quern_quantization *q);

/* The rest of the workspace behind the product's part, which ends at
   space->cast. */
void qn_result_lay_out(const struct quern_problem *problem,
                       const struct qn_recipe *recipe,
                       struct qn_result_space *space);

/* The workspace of both, whichever way the product goes. */
size_t qn_result_end(struct quern_context *ctx,
                     const struct quern_problem *problem,
                     const struct qn_recipe *recipe);

/* Do the options name a kernel that would make the copies? */
int qn_result_named(const struct qn_session *session);

/* Append the launches of the product and the cast, to a plan that has problem and
   machine: errors of quern_plan. */
int qn_result_plan(struct quern_plan *plan, struct qn_session *session);

/* The rules of quern_run on what the cast gets besides copies; where there is
   none, none of it is taken. QUERN_EINVAL. */
int qn_result_check(const struct quern_plan *plan,
                    const struct quern_args *args);

/* The arguments of a product whose D a cast reads. */
struct qn_frame;
struct qn_launch;
void qn_result_args(const struct qn_frame *frame, struct quern_args *args);

/* Launch the cast, in the plan's context. QUERN_ECUDA. */
int qn_result_quantize(struct qn_frame *frame, const struct qn_launch *launch);

/* Which way the session's problem goes and what is counted for it: `apart`, or
   by a kernel. *served becomes 0 where the product has none. */
int qn_result_why(struct qn_session *session, int apart, int *served,
                  struct qn_text *text);

#endif

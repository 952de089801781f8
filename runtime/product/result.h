/* SPDX-License-Identifier: Apache-2.0 */
/*
** result.h: the cast that quantizes a product's result.
*/
#ifndef QUERN_PRODUCT_RESULT_H
#define QUERN_PRODUCT_RESULT_H

#include "internal.h"

struct qn_frame;
struct qn_launch;
struct qn_session;
struct qn_text;
struct qn_plan;
struct qn_quantize_plan;

/* A plan in a session of a problem that wants copies. Errors of qn_plan. */
int qn_result_make(struct qn_session *session, struct qn_plan **plan);

/* The rules of qn_run on what the cast gets besides copies; where there is
   none, none of it is taken. QUERN_EINVAL. */
int qn_result_check(const struct qn_plan *plan, const struct qn_args *args);

/* D as high-precision values in the workspace, with as many rows as the run
   has; and the arguments of the cast that reads it, but for its sizes. */
void qn_result_numbers(const struct qn_plan *plan, const struct qn_args *args,
                       struct qn_tensor *numbers);
void qn_result_args(const struct qn_plan *plan,
                    const struct qn_quantize_plan *cast,
                    const struct qn_args *args, struct qn_quantize_args *out);

/* Turn the arguments of a run into those of its product. */
void qn_result_product_args(const struct qn_frame *frame, struct qn_args *args);

/* Launch the cast, in the plan's context. QUERN_ECUDA. */
int qn_result_quantize(struct qn_frame *frame, const struct qn_launch *launch);

/* Say whether a kernel makes the copies, or a cast: `apart`. */
void qn_result_why(struct qn_session *session, int apart, struct qn_text *text);

#endif

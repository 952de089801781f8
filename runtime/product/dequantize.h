/* SPDX-License-Identifier: Apache-2.0 */
/*
** dequantize.h: launches and explanations of products whose operands become
** bf16 before they are multiplied.
*/
#ifndef QUERN_PRODUCT_AHEAD_H
#define QUERN_PRODUCT_AHEAD_H

#include "internal.h"

struct qn_dequantize_choice;
struct qn_frame;
struct qn_launch;
struct qn_session;
struct qn_text;
struct qn_plan;

/* A plan in a session, whose operands are dequantized in a pass where that is
   asked for or takes less time. Errors of qn_plan. */
int qn_dequantize_make(struct qn_session *session, struct qn_plan **plan);

/* Launches of those kinds, in the plan's context. QUERN_ECUDA. */
int qn_dequantize_prepare(struct qn_frame *frame,
                          const struct qn_launch *launch);
int qn_dequantize_check_range(struct qn_frame *frame,
                              const struct qn_launch *launch);
int qn_dequantize_to_fp8(struct qn_frame *frame,
                         const struct qn_launch *launch);
int qn_dequantize_to_bf16(struct qn_frame *frame,
                          const struct qn_launch *launch);

/* The arguments of a product whose operands such launches make. */
void qn_dequantize_args(const struct qn_frame *frame,
                        const struct qn_launch *launch, struct qn_args *args);

/* Say how the operands are dequantized, and why. */
void qn_dequantize_why(struct qn_session *session,
                       const struct qn_dequantize_choice *choice,
                       struct qn_text *text);

#endif

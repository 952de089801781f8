/* SPDX-License-Identifier: Apache-2.0 */
/*
** epilogue.h: plans of a product and, if no kernel fuses it, its epilogue.
*/
#ifndef QUERN_PRODUCT_EPILOGUE_H
#define QUERN_PRODUCT_EPILOGUE_H

#include "internal.h"

struct qn_frame;
struct qn_launch;
struct qn_session;
struct qn_text;
struct qn_plan;

/* A plan in a session of a problem that wants no copies: of kernels that fuse
   its epilogue, else of dequantized operands, or with a launch for the
   epilogue. Errors of qn_plan. */
int qn_epilogue_make(struct qn_session *session, struct qn_plan **plan);

/* The arguments of a product whose sums an epilogue reads. */
void qn_epilogue_args(const struct qn_frame *frame, struct qn_args *args);

/* Launch the epilogue, in the plan's context. QUERN_ECUDA. */
int qn_epilogue_run(struct qn_frame *frame, const struct qn_launch *launch);

/* Say that no kernel fuses the epilogue of the session's problem, and what is
   done instead. */
int qn_epilogue_why(const struct qn_session *session, struct qn_text *text);

#endif

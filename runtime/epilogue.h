/*
** epilogue.h: a bias or an activation that no kernel fuses with its product.
**
** The product leaves alpha * A * B in fp32 in the workspace, and a launch of
** its own makes D of that, P, and the sums for dbias and dprob: the bytes of a
** kernel that fuses the epilogue and has the same sums. Operands that may be
** dequantized can be multiplied by a kernel of bf16 instead, which fuses it.
**
** SPDX-License-Identifier: Apache-2.0
*/
#ifndef QUERN_EPILOGUE_H
#define QUERN_EPILOGUE_H

#include "session.h"
#include "text.h"

struct qn_frame;
struct qn_launch;
struct quern_plan;
struct qn_why_choice;

/* Does the problem have a bias or an activation that, by its rules and the
   kernels that there are, some GPU has no kernel for? Then a plan may be one
   of these, and descriptions state its workspace. */
int qn_epilogue_apart(struct quern_context *ctx,
                      const struct quern_problem *problem,
                      const struct qn_recipe *recipe);

/* The end of the workspace of all such plans. */
size_t qn_epilogue_end(struct quern_context *ctx,
                       const struct quern_problem *problem,
                       const struct qn_recipe *recipe);

/* The estimated cycles of both plans; 0: there is none. */
struct qn_epilogue_choice {
    double apart;      /* the product's and the epilogue's launches */
    double bytes;      /* moved by the epilogue's */
    double dequantize; /* of operands dequantized for a kernel that fuses */
};

/* Where no kernel serves the session's problem. QUERN_ENOMEM, QUERN_EINVAL. */
int qn_epilogue_choose(const struct qn_session *session,
                       struct qn_epilogue_choice *choice);

/* Is the plan of dequantized operands the better one, or the only one? */
int qn_epilogue_dequantizes(const struct qn_epilogue_choice *choice);

/* Append the launches of the product and its epilogue, to a plan that has
   problem and machine: errors of quern_plan. */
int qn_epilogue_plan(struct quern_plan *plan, struct qn_session *session);

/* The arguments of a product whose sums an epilogue reads. */
void qn_epilogue_args(const struct qn_frame *frame, struct quern_args *args);

/* Launch the epilogue, in the plan's context. QUERN_ECUDA. */
int qn_epilogue_run(struct qn_frame *frame, const struct qn_launch *launch);

/* What runs where no kernel serves the session's problem. choice->served stays
   as it is if nothing does. */
int qn_epilogue_why(const struct qn_session *session,
                    struct qn_why_choice *choice, struct qn_text *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** epilogue_model.h: the epilogues that no kernel fuses, and what a launch of
** their own costs.
*/
#ifndef QUERN_CHOOSE_EPILOGUE_MODEL_H
#define QUERN_CHOOSE_EPILOGUE_MODEL_H

#include "internal.h"

struct qn_session;
struct quern_context;

/* Does the problem have a bias or an activation that, by its rules and the
   kernels that there are, some GPU has no kernel for? Descriptions then state
   the workspace of an epilogue's own launch. */
int qn_epilogue_apart(struct quern_context *ctx,
                      const struct qn_problem *problem,
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

#endif

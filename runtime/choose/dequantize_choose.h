/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_choose.h: are the operands of a product dequantized before it? By
   the model, or as was measured. */
#pragma once

#include "problem/dequantize_rules.h"

struct qn_session;

/* How the session's problem runs. */
struct qn_dequantize_choice {
    int strategy; /* enum quern_dequantize, but for AUTO */
    int model;    /* the same, had nothing been measured */
    int tuned;    /* it was measured to be the fastest */
    int asked;    /* the problem leaves no choice */
    int judged;   /* the figures are of kernels that fit */
    int fixed;    /* by the order of sums, for all counts of rows */
    struct qn_dequantize_cost cost[QUERN_DEQUANTIZE_F16 + 1]; /* by strategy */
};

/* For the session's problem and machine. QUERN_EINVAL, QUERN_ENOMEM. */
int qn_dequantize_choose(struct qn_session *session,
                         struct qn_dequantize_choice *choice);

/* The fallback strategy if no kernels exist for the chosen one. */
int qn_dequantize_next(const struct qn_dequantize_choice *choice);

/* SPDX-License-Identifier: Apache-2.0 */
/* tuned.h: measured winners for the choice of a kernel. */
#pragma once

#include "internal.h"
#include "tuned/tune_store.h"

struct qn_choice;
struct qn_session;
struct qn_text;

/* All zero: nothing is known. */
struct qn_tuned {
    int known; /* the bucket was measured */
    struct qn_tune_found found;
    const struct qn_kernel *kernel; /* the winner, now first of the list; NULL
                                       if it does not serve the problem */
    char misfit[256];               /* and why not */
};

/* Put the winner of the session's problem before the model's choices, if the
   options name no kernel, a GPU is there, and it serves the problem; record the
   result in session->tuned. QUERN_ENOMEM. */
int qn_tuned_prefer(struct qn_session *session, struct qn_choice *list,
                    int count);

/* Is anything known of the session's problem? QUERN_ENOMEM. */
int qn_tuned_look(struct qn_session *session);

/* The band that the kernel should run with: the measured one, or `usual`. */
int qn_tuned_band(const struct qn_session *session,
                  const struct qn_kernel *kernel, int usual);

/* For qn_why: the measured winner, whether its strategy to dequantize is taken,
   and which files are not used. */
void qn_tuned_why(struct qn_session *session, int taken, struct qn_text *text);

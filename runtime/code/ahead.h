/* SPDX-License-Identifier: Apache-2.0 */
/* ahead.h: kernels of a plan, compiled side by side before it is made. */
#pragma once

struct cu_context;
struct qn_candidate;
struct qn_driver;
struct quern_context;

/* More kernels than that are compiled when the plan loads them. */
enum { QN_AHEAD_KERNELS = 64 };

struct qn_ahead {
    const struct qn_candidate *at[QN_AHEAD_KERNELS];
    int count;
    struct qn_ahead_failure {
        int code; /* 0, QUERN_ECOMPILE or QN_REJECTED */
        char *message;
    } failed[QN_AHEAD_KERNELS]; /* of each, when they have been loaded */
};

/* Note a kernel, once. */
void qn_ahead_note(struct qn_ahead *ahead, const struct qn_candidate *);

/* Compile and load the kernels, for a GPU, on as many cores as the process may
   use. No error is told: the plan meets it again when it loads the kernel. */
void qn_ahead_load(struct qn_ahead *ahead, struct quern_context *ctx,
                   struct qn_driver *driver, struct cu_context *context);

/* The error of a kernel that did not compile, which takes as long again to
   find out; QUERN_OK for all others. */
int qn_ahead_failed(const struct qn_ahead *ahead,
                    const struct qn_candidate *candidate);

/* Free the errors of qn_ahead_load. */
void qn_ahead_free(struct qn_ahead *ahead);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** trial.h: the first use of a kernel on a GPU on which it never ran.
**
** A program of its own runs the kernel's code on a small problem and compares
** the result with the host's, under a time limit (runtime/cli/trial.c). The
** outcome is kept in the cache, under the code, the GPU and its driver. A
** kernel whose evidence on such a GPU is `run` costs nothing here.
*/
#pragma once

#include "internal.h"

struct qn_candidate;
struct qn_choice;
struct qn_session;
struct qn_text;
struct quern_context;

/* X(name, word, days): for which the cache keeps an outcome; 0: it does not,
   -1: always. */
#define QN_TRIALS(X)                                                           \
    X(NONE, "not known", 0)                                                    \
    X(RIGHT, "right", -1)                                                      \
    X(WRONG, "wrong", -1)  /* a value that the host's is not */                \
    X(LATE, "late", 1)     /* no result in time */                             \
    X(FAILED, "failed", 1) /* a CUDA error, or a crash */                      \
    X(UNABLE, "unable", 0) /* nothing ran: no program, no memory, .. */
#define QN_TRIAL_ENUM(name, word, days) QN_TRIAL_##name,
enum qn_trial { QN_TRIALS(QN_TRIAL_ENUM) QN_TRIAL_COUNT };

/* An outcome, in the context's list. */
struct qn_trial_result {
    struct qn_trial_result *next;
    const struct qn_kernel *kernel;
    int device;        /* its ordinal */
    int verdict, told; /* enum qn_trial; the log has it */
    char reason[200];  /* unless it is right */
};

/* The state of a choice among kernels, the best first; all zero at first. */
struct qn_trial_line {
    int failed; /* kernels that were tried now and may not run */
    struct qn_trial_result *first;    /* of those; the best one */
    const struct qn_candidate *spare; /* a last resort: see below */
};

/*
** May the next kernel in line run? QUERN_OK; QN_REJECTED with the reason as the
** message, for the next one. A kernel that was not tried before is tried.
**
** mma.sync serves where nothing can be tried. One that was late, or failed,
** becomes the line's spare: the kernel to use if none is left, as a GPU that
** others keep busy shows no more. One that was wrong never runs.
*/
int qn_trial_next(struct qn_session *session, struct qn_trial_line *line,
                  const struct qn_candidate *candidate, int backend);

/* Tell the log, in one line, which kernel serves in place of the best; once. */
void qn_trial_tell(const struct qn_session *session,
                   const struct qn_trial_line *line,
                   const struct qn_kernel *serves);

/* For explanations: those that plans would pass over, as far as is known, no
   longer fit, with the reason. Tries nothing. */
void qn_trial_mark(struct qn_session *session, struct qn_choice *list,
                   int count);

/* The outcomes of these kernels; else a line about the first use. */
void qn_trial_why(struct qn_session *session, const struct qn_choice *list,
                  int count, struct qn_text *text);

/* QUERN_TRUST: the least evidence that needs no trial. QUERN_EINVAL. */
int qn_trial_open(struct quern_context *ctx);
void qn_trial_close(struct quern_context *ctx);

/* trial_run.c */

/* Run the program; the result's verdict is set, and its reason. */
void qn_trial_run(struct qn_session *session, const struct qn_kernel *kernel,
                  const void *cubin, size_t bytes,
                  struct qn_trial_result *result);

/* Time for a kernel: its program starts CUDA, which takes seconds on a machine
   of many GPUs, and computes for less than one. */
#define QN_TRIAL_SECONDS 20

/* The first argument of the program, which people do not type. */
#define QN_TRIAL_COMMAND ".trial"

/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: the machine and the problem that a plan or an explanation is
   for. */
#pragma once

#include "choose/select.h"
#include "choose/tuned.h"
#include "code/jit.h"
#include "code/module.h"
#include "device/driver.h"

struct qn_ahead;
struct qn_text;
struct quern_context;

/* A code of our own: the plan needs a kernel that is not loaded yet. */
#define QN_COLD (QN_REJECTED + 1)

struct qn_session {
    struct quern_context *ctx;
    const struct qn_problem *problem;
    struct qn_plan_options options;
    struct qn_driver *driver; /* NULL: no GPU, or it is not asked for */
    struct qn_driver_scope scope;
    struct qn_device device;
    struct qn_description need;
    struct qn_demand demand; /* its backend stays AUTO where a GPU is */
    struct qn_tuned tuned;
    int band;                  /* that a kernel must run with; 0: as usual */
    struct qn_figures figures; /* of the kernel that was chosen */
    struct qn_module found;    /* of an outline, in place of a loaded one */
    int outline; /* choose kernels and load none of them: for explanations */
    struct qn_ahead *ahead;       /* NULL, or takes the kernels of an outline */
    const struct qn_ahead *tried; /* NULL, or kernels that were compiled for the
                                     plan, with the errors that it is to meet */
    int compiles_none;            /* QN_COLD where a kernel is not loaded yet */
};

/* A kind of plans: `make` is given a line, unless the session has its problem,
   and the place of the plan, which `drop` frees and sets to NULL. */
struct qn_plan_kind {
    int (*make)(struct qn_session *session, const void *line, void *plan);
    void (*drop)(void *plan);
};

/* Check problem (NULL: there is none) and options and open the backend's
   libraries; with a GPU, its context is current until the session is closed,
   which is due after errors too. AUTO without a GPU becomes HOST. */
int qn_session_open(struct qn_session *session, struct quern_context *ctx,
                    const struct qn_problem *problem,
                    const struct qn_plan_options *options);
void qn_session_close(struct qn_session *session);

/* The same machine, for a problem that is part of the outer one: NULL for a
   cast's. Closed like any other. Errors are those of qn_session_open. */
int qn_session_inner(struct qn_session *session, const struct qn_session *outer,
                     const struct qn_problem *problem,
                     const struct qn_plan_options *options);

/* Make a plan, whose kernels are compiled side by side if one of them is not
   loaded yet. Errors are those of the kind. */
int qn_session_make(const struct qn_session *session,
                    const struct qn_plan_kind *kind, const void *line,
                    void *plan);

/* The same in a session of its own. QUERN_ECAPTURE; other errors are those of
   qn_session_open and of the kind. */
int qn_session_plan(struct quern_context *ctx,
                    const struct qn_plan_options *options,
                    const struct qn_plan_kind *kind, const void *line,
                    void *plan);

/* A plan of the session is about to load a kernel. QN_COLD where it compiles
   none; QUERN_ECOMPILE and QN_REJECTED of one that did not compile just now. */
int qn_session_loads(const struct qn_session *session,
                     const struct qn_candidate *candidate, int backend);

/* Explain in a session of its own, which may have a problem: `explain` is given
   the line and adds to a text, which becomes the caller's; NULL after errors.
   Without a GPU the machine is assumed to be an H200, and the text says so. */
int qn_session_why(struct quern_context *ctx, const struct qn_problem *problem,
                   const struct qn_plan_options *options,
                   int (*explain)(struct qn_session *session, const void *line,
                                  struct qn_text *text),
                   const void *line, char **text);

/* QUERN_EINVAL: the options name cublaslt, which only multiplies; `does` is
   the verb of the call. */
int qn_session_no_cublaslt(const struct qn_plan_options *options,
                           const char *does);

/* The compute capability of its GPU, assumed or not: 90 for 9.0. */
int qn_session_capability(const struct qn_session *session);

/* Do kernels run on a GPU, which may be an assumed one? */
int qn_session_gpu(const struct qn_session *session);

/* Does it pay to let launches begin before those before them have ended? With
   few rows of tokens, for kernels for compute capability 9.0 and later, which
   wait themselves. */
int qn_session_dependents(const struct qn_session *session, int64_t rows);

/* QUERN_ECAPTURE where the stream, NULL for the legacy one, or the thread's own
   captures: `what` loads modules. As far as the driver tells: streams that do
   not block the legacy stream are seen only when a call fails. */
int qn_session_capture(const struct qn_session *session, void *stream,
                       const char *what);

/* Without a GPU, or with ctx->assumed: go on as on that one, else as on an
   H200. */
void qn_session_assume_gpu(struct qn_session *session, int backend);

/* For an outline on a GPU that is not there, whose kernels could all be
   compiled. Needs no qn_session_close. QUERN_EINVAL. */
int qn_session_assume(struct qn_session *session, struct quern_context *ctx,
                      const struct qn_problem *problem,
                      const struct qn_device *device);

/* QUERN_EINVAL if the options name a kernel that does not exist. */
int qn_session_name(const struct qn_session *session);

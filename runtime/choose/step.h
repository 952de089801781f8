/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: a kernel next to the one that a plan is for: one CTA of it, or as
   many as the multiprocessors have room for. */
#pragma once

#include "internal.h"

struct cu_function;
struct qn_driver;
struct qn_session;
struct qn_text;

struct qn_step {
    const struct qn_kernel *kernel; /* NULL: nothing to do */
    struct cu_function *handle;
    unsigned ctas;
    int dependent; /* as qn_driver_launch has it */
};

/* May kernels that were not linked be compiled next to a linked one? If the
   caller left the backend open. */
int qn_step_compiles(const struct qn_session *session, int backend);

/* Load the recipe's kernel of that op (enum qn_cast_op) for the tensor (enum
   quern_of; X where it is of none), in the current context. Errors are those of
   qn_plan; where there is no such kernel the message says that none `does`
   it. */
int qn_step_load(struct qn_session *session, int op, int of, const char *does,
                 const char *recipe, int backend, struct qn_step *step);

/* A kernel's line of `quern why`. */
void qn_step_explain(const char *kernel, int dependent, const char *indent,
                     struct qn_text *text);

/* Queue it, in the current context, with the values at these addresses (by enum
   qn_param). Neither allocates nor synchronizes. QUERN_ECUDA. */
int qn_step_launch(struct qn_driver *driver, const struct qn_step *step,
                   void *const values[QN_PARAM_COUNT], void *stream);

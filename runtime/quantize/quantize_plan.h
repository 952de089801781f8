/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_plan.h: plans and runs of quantizations. */
#pragma once

#include "choose/step.h"
#include "choose/values.h"
#include "device/host.h"
#include "problem/quantize.h"

struct cu_context;
struct cu_function;
struct qn_candidate;
struct qn_driver;
struct qn_session;
struct quern_context;

/* One launch of a run. */
struct qn_quantize_step {
    const struct qn_kernel *kernel;
    qn_host_function *function;
    struct cu_function *handle;
    struct cu_launch launch;
    int dependent; /* as qn_driver_launch has it */
};

enum { QN_QUANTIZE_STEPS = 4 };

struct qn_quantize_plan {
    struct quern_context *ctx;
    struct qn_quantization q;
    struct qn_quantize_description need;
    const struct qn_recipe *recipe;
    struct qn_quantize_space space;
    int backend, workers, capability; /* of the GPU, 90 for 9.0 */
    struct qn_quantize_step steps[QN_QUANTIZE_STEPS];
    int nsteps;
    struct qn_values values;  /* complete but for a run's arguments */
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
    struct qn_step size_step;
};

/* The least evidence of its kernels, of enum quern_evidence. */
int qn_quantize_evidence(const struct qn_quantize_plan *plan);

/* The plan for a run of `m` rows, which may be fewer: itself, or a copy
   of it in `room`, which owns nothing. */
int qn_quantize_fit(const struct qn_quantize_plan *plan, int64_t m,
                    struct qn_quantize_plan *room,
                    const struct qn_quantize_plan **fitted);

/* The rules of qn_quantize_run that a line's table of operands does not say.
   QUERN_EINVAL names argument and rule. */
int qn_quantize_args(const struct qn_quantize_plan *plan,
                     const struct qn_quantize_args *args);

/* The same for arguments that may have fewer rows than the plan: `*fitted` is
   the plan for them, itself or in `room`. */
int qn_quantize_admit(const struct qn_quantize_plan *plan,
                      const struct qn_quantize_args *args,
                      struct qn_quantize_plan *room,
                      const struct qn_quantize_plan **fitted);

/* qn_quantize_run of arguments that were checked, in the plan's context.
   QUERN_ECUDA. */
int qn_quantize_launch(const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, void *stream);

/* A quantized tensor that is dequantized, packed, without its scales of the
   second level: these are left to the code that reads the values. */
struct qn_expansion {
    const struct qn_quantization *q; /* the plan's, of as many rows */
    const struct qn_tensor *copy;
    void *out;
    const void *first_dims, *offsets; /* none of w */
    int sizes_bytes;
    int align; /* as the kernels' parameter; 0 of w and of rowwise tensors */
    const int *noop;
    void *error;
};

/* Queue it, of arguments that were checked, by a plan of dequantize, in the
   plan's context. Neither allocates nor synchronizes; the host runs it at once.
   QUERN_ECUDA. */
int qn_quantize_unpack(const struct qn_quantize_plan *plan,
                       const struct qn_expansion *expansion, void *stream);

/* The plan of a cast that is part of the session's. Errors are those of
   qn_quantize_plan. */
int qn_quantize_plan_inner(const struct qn_session *session,
                           const struct qn_quantization *q,
                           const struct qn_plan_options *options,
                           struct qn_quantize_plan **plan);

/* Only kernels of some ops (enum qn_cast_op), and one launch of them, or where
   the host computes one run, of values that are the caller's. */
int qn_quantize_steps(struct qn_session *session,
                      const struct qn_quantization *q, int backend,
                      const int *ops, int count,
                      struct qn_quantize_plan **plan);
int qn_quantize_step_run(const struct qn_quantize_plan *plan, int step,
                         struct qn_values *values, void *stream);

/* A kernel comes before that step in each run: let the step be dependent,
   unless memory is cleared between them, or it is of weights. */
void qn_quantize_depend(struct qn_quantize_plan *plan, int step);

/* The kernel that makes the result on the session's machine. QUERN_ENOKERNEL */
int qn_quantize_find(const struct qn_session *session,
                     const struct qn_quantization *q,
                     const struct qn_candidate **out);

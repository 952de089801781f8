/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h: one run of a plan's launches. */
#pragma once

#include "choose/values.h"
#include "base/sizes_type.h"
#include "problem/dequantize_rules.h"
#include "internal.h"

struct qn_launch;
struct qn_session;
struct qn_text;
struct qn_values;
struct qn_driver;
struct qn_step;
struct qn_quantize_plan;
struct qn_dequantize_choice;
struct qn_plan;

/* The state that launches of one run share. */
struct qn_frame {
    const struct qn_plan *plan; /* fits the arguments */
    const struct qn_args *args;
    void *stream;
    /* the groups' sizes, as casts and small kernels read them */
    const void *lengths, *offsets;
    int sizes_type;
    struct qn_dequantize_space
        space;               /* of the workspace, for dequantized operands */
    struct qn_values values; /* of the last product */
};

/* An address in the workspace. */
static inline void *qn_frame_at(const struct qn_frame *frame, size_t at)
{
    return (char *)frame->args->workspace + at;
}

/* 8 or 4: bytes of one size. */
static inline int qn_frame_sizes(const struct qn_frame *frame)
{
    return qn_sizes_bytes(frame->sizes_type);
}

/* epilogue: plans of a product and, if no kernel fuses it, its epilogue. */

/* A plan in a session of a problem that wants no copies: of kernels that fuse
   its epilogue, else of dequantized operands, or with a launch for the
   epilogue. Errors of qn_plan. */
int qn_epilogue_make(struct qn_session *session, struct qn_plan **plan);

/* The arguments of a product whose sums an epilogue reads. */
void qn_epilogue_args(const struct qn_frame *frame, struct qn_args *args);

/* Launch the epilogue, in the plan's context. QUERN_ECUDA. */
int qn_epilogue_run(struct qn_frame *frame, const struct qn_launch *launch);

/* Say that no kernel fuses the epilogue of the session's problem, and the
   launch used instead. */
int qn_epilogue_why(const struct qn_session *session, struct qn_text *text);

/* lora: the launches of adapters. */

/* A plan in a session of a problem that wants no copies, with adapters or
   without. Errors of qn_plan. */
int qn_lora_make(struct qn_session *session, struct qn_plan **plan);

/* Append the product that makes lora_t, or the one that adds to the sums of the
   plan's own. */
int qn_lora_add_down(struct qn_plan *plan, const struct qn_session *session);
int qn_lora_add_up(struct qn_plan *plan, const struct qn_session *session);

/* The arguments of one of the two products. */
void qn_lora_args(const struct qn_frame *frame, const struct qn_launch *launch,
                  struct qn_args *args);

/* fuse: the launches before a product that quantizes an operand. */

/* Append the launches that quantize A before the product, to a plan that has
   its kernel, or none yet where dequantized operands follow. */
int qn_fuse_plan(struct qn_plan *plan, const struct qn_session *session);

/* The rules of kernels on the values that a run quantizes. QUERN_EINVAL. */
int qn_fuse_check(const struct qn_plan *plan, const struct qn_args *args);

/* Launch the cast of A, and the sums of A that no cast makes, in the plan's
   context. QUERN_ECUDA. */
int qn_fuse_quantize(struct qn_frame *frame, const struct qn_launch *launch);
int qn_fuse_sum(struct qn_frame *frame, const struct qn_launch *launch);

/* The launches after a dgrad that goes back through an activation. */

/* Append the sums that follow the product, if there are any, with kernels of
   the plan's backend. */
int qn_gradient_plan(struct qn_plan *plan, struct qn_session *session);

/* Parameters that the kernels read from the plan's values. */
void qn_gradient_set(const struct qn_problem *problem,
                     const struct qn_args *args, struct qn_values *values);

/* Launch one of the sums, in the plan's context; the host runs it at once.
   QUERN_ECUDA. */
int qn_gradient_sum(struct qn_frame *frame, const struct qn_launch *launch);

/* requantize.c: the launches that encode operands as FP8. */

/* Load the launch that makes operand `role`: as qn_step_load. */
int qn_requantize_load(struct qn_session *session, int role, int backend,
                       struct qn_step *step);

/* An operand that a run requantizes. */
struct qn_reencoding {
    const struct qn_problem *problem; /* of as many rows as the run */
    const struct qn_recipe *recipe, *target;
    int role;
    const struct qn_tensor *copy;
    void *codes, *sf;
    unsigned int *flags;
    const void *first_dims, *offsets;
    int sizes_bytes;
    const int *noop;
    void *error;
};

/* Queue it, in the current context. QUERN_ECUDA. */
int qn_requantize_launch(struct qn_driver *driver, const struct qn_step *step,
                         const struct qn_reencoding *encoding, void *stream);

/* result: the cast that quantizes a product's result. */

/* A plan in a session of a problem that wants copies. Errors of qn_plan. */
int qn_result_make(struct qn_session *session, struct qn_plan **plan);

/* Turn the arguments of a run into those of its product. */
void qn_result_product_args(const struct qn_frame *frame, struct qn_args *args);

/* Launch the cast, in the plan's context. QUERN_ECUDA. */
int qn_result_quantize(struct qn_frame *frame, const struct qn_launch *launch);

/* Say whether a kernel makes the copies, or a cast: `apart`. */
void qn_result_why(struct qn_session *session, int apart, struct qn_text *text);

/* Launches and explanations of products whose operands are dequantized before
   they are multiplied. */

/* A plan in a session, whose operands are dequantized in a pass where that is
   asked for or takes less time. Errors of qn_plan. */
int qn_dequantize_make(struct qn_session *session, struct qn_plan **plan);

/* Launches of those kinds, in the plan's context. QUERN_ECUDA. */
int qn_dequantize_prepare(struct qn_frame *frame,
                          const struct qn_launch *launch);
int qn_dequantize_check_range(struct qn_frame *frame,
                              const struct qn_launch *launch);
int qn_dequantize_to_fp8(struct qn_frame *frame,
                         const struct qn_launch *launch);
int qn_dequantize_to_bf16(struct qn_frame *frame,
                          const struct qn_launch *launch);

/* The arguments of a product whose operands such launches make. */
void qn_dequantize_args(const struct qn_frame *frame,
                        const struct qn_launch *launch, struct qn_args *args);

/* Say how the operands are dequantized, and why. */
void qn_dequantize_why(struct qn_session *session,
                       const struct qn_dequantize_choice *choice,
                       struct qn_text *text);

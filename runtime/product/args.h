/* SPDX-License-Identifier: Apache-2.0 */
/* args.h: the arguments of a run, as its plan sees them. */
#pragma once

#include "problem/geometry.h"
#include "product/plan.h"

#include <stddef.h>

/* How callers name the operands, by enum qn_role. */
extern const char *const qn_args_names[QN_ROLES];

/* The place of an operand in struct qn_args, by enum qn_role. Every run comes
   here a dozen times. */
static inline size_t qn_args_place(int role)
{
    static const size_t places[QN_ROLES] = {
        [QN_ROLE_A] = offsetof(struct qn_args, a),
        [QN_ROLE_B] = offsetof(struct qn_args, b),
        [QN_ROLE_C] = offsetof(struct qn_args, c),
        [QN_ROLE_D] = offsetof(struct qn_args, d),
        [QN_ROLE_P] = offsetof(struct qn_args, p),
        [QN_ROLE_T] = offsetof(struct qn_args, t)};

    return places[role];
}
static inline const struct qn_tensor *qn_args_tensor(const struct qn_args *args,
                                                     int role)
{
    return (const void *)((const char *)args + qn_args_place(role));
}

/* Elements from one row to the next, and from one group's matrix to the next:
   as given, or of packed ones. No group axis: 0. */
static inline int64_t qn_args_stride(const struct qn_tensor *tensor,
                                     const struct qn_geometry *geometry)
{
    return tensor->stride ? tensor->stride : geometry->pitch;
}
int64_t qn_args_group_stride(const struct qn_tensor *tensor,
                             const struct qn_geometry *geometry);

/* The operand whose arrays give the sizes (enum qn_role); -1 without any
   ragged operand. If none has arrays, the first one that should have. */
int qn_args_sizes(const struct qn_plan *plan, const struct qn_args *args);

/* The lengths among its arrays: of its first axis, or of its last. */
static inline const void *qn_args_lengths(const struct qn_tensor *tensor,
                                          const struct qn_geometry *geometry)
{
    return geometry->inner_ragged ? tensor->last_dims : tensor->first_dims;
}

/* The groups' sizes as the caller gives them, on the host or the device. */
void qn_args_given(const struct qn_plan *plan, const struct qn_args *args,
                   const void **lengths, const void **offsets, int *type);

/* The rules of qn_run that a line's table of operands does not say.
   QUERN_EINVAL names argument and rule. */
int qn_args_check(const struct qn_plan *plan, const struct qn_args *args);

/* Does the run have the operand? C is one only where it is read from memory of
   its own, P where the caller wants it. */
static inline int qn_args_has(const struct qn_plan *plan,
                              const struct qn_args *args, int role)
{
    return plan->has[role] == QN_HAS_ALWAYS ||
           (plan->has[role] == QN_HAS_IF_GIVEN &&
            qn_args_tensor(args, role)->data);
}

/* The bytes of an operand (enum qn_role) from the first to the last; none if
   empty, or not in one buffer. */
struct qn_region qn_args_region(const struct qn_plan *plan,
                                const struct qn_args *args, int role);

/* QUERN_EINVAL names two arguments that share a byte which is written. */
int qn_args_overlap(const struct qn_plan *plan, const struct qn_args *args);

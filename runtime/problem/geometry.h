/* SPDX-License-Identifier: Apache-2.0 */
/* geometry.h: how the operands of a problem are in memory. */
#pragma once

#include "problem/scale.h"

/* Length of an axis; the ragged one's total. */
int64_t qn_geometry_length(const struct qn_problem *problem, int axis);

/* C is as D does; P is the pre-activation; T the columnwise tensor,
   where D is a rowwise tensor. */
enum qn_role {
    QN_ROLE_A,
    QN_ROLE_B,
    QN_ROLE_C,
    QN_ROLE_D,
    QN_ROLE_P,
    QN_ROLE_T,
    QN_ROLES
};

/* By enum qn_role, as arguments are named. */
#define QN_LETTERS "abcdpt"

/* Does the activation take two operands, so that D is half as wide as P? */
int qn_geometry_halves(const struct qn_problem *problem);

/* Does the product go back through the activation, so that D and P are as wide
   as its input? */
int qn_geometry_backward(const struct qn_problem *problem);

/* Does the problem have the operand? C is as D does, wanted or not. */
int qn_geometry_has(const struct qn_problem *problem, int role);

/* How an operand is in memory: [G,] outer, inner; inner is contiguous. */
struct qn_geometry {
    int role;
    int type;
    int outer, inner; /* enum quern_axis */
    int grouped;      /* has a group axis: holds no ragged one */
    int gathered;     /* rows are read through indices: none of both */
    int inner_ragged; /* the contiguous axis is the ragged one */
    int64_t groups;   /* 1 if not grouped */
    int64_t rows;     /* of one group if grouped, else of all */
    int64_t columns;
    int64_t pitch; /* elements from one row to the next where none is given */
    int64_t bytes; /* from the first to the last without any gaps; or -1 */
    struct qn_scales sf;
};

void qn_geometry_of(const struct qn_problem *problem,
                    const struct qn_recipe *recipe, int role,
                    struct qn_geometry *geometry);

/* Bytes from the first element to the last when rows have a stride of `stride`
   elements, 0 for packed ones, and groups `group_stride`, 0 for one after the
   other. 0 if there are no elements, -1 if 64 bits do not hold them. */
int64_t qn_geometry_spread(const struct qn_geometry *geometry, int64_t stride,
                           int64_t group_stride);
static inline int64_t qn_geometry_bytes(const struct qn_geometry *geometry,
                                        int64_t stride, int64_t group_stride)
{
    return (!stride || stride == geometry->pitch) && !group_stride
               ? geometry->bytes
               : qn_geometry_spread(geometry, stride, group_stride);
}

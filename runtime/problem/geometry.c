/* SPDX-License-Identifier: Apache-2.0 */
/* geometry.c: how the operands of a problem are in memory. */
#include "problem/geometry.h"
#include "base/types.h"

int64_t qn_geometry_length(const struct qn_problem *problem, int axis)
{
    switch (axis) {
    case QUERN_AXIS_M:
        return problem->m;
    case QUERN_AXIS_N:
        return problem->n;
    case QUERN_AXIS_K:
        return problem->k;
    default:
        return 1;
    }
}

int qn_geometry_halves(const struct qn_problem *p)
{
    return qn_activation_operands(p->activation) == 2;
}

int qn_geometry_backward(const struct qn_problem *p)
{
    return p->op == QUERN_DGRAD && p->activation;
}

int qn_geometry_has(const struct qn_problem *p, int role)
{
    return role == QN_ROLE_P   ? p->saved || qn_geometry_backward(p)
           : role == QN_ROLE_T ? (p->copies & QUERN_COLUMNWISE) != 0
                               : 1;
}

int64_t qn_geometry_spread(const struct qn_geometry *g, int64_t stride,
                           int64_t group_stride)
{
    int64_t bits, groups;

    if (g->rows == 0 || g->columns == 0)
        return 0;
    if (!stride)
        stride = g->pitch;
    if (!group_stride && __builtin_mul_overflow(g->rows, stride, &group_stride))
        return -1;
    if (__builtin_mul_overflow(g->groups - 1, group_stride, &groups) ||
        __builtin_mul_overflow(g->rows - 1, stride, &bits) ||
        __builtin_add_overflow(bits, g->columns, &bits) ||
        __builtin_add_overflow(bits, groups, &bits) ||
        __builtin_mul_overflow(bits, qn_type_bits(g->type), &bits))
        return -1;
    return bits / 8 + (bits % 8 != 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* geometry_of.c: how an operand of a problem is in memory. */
#include "problem/geometry.h"

/* The type of A or B is that of the layer's tensor which it is. */
static int type_of(const struct qn_problem *p, const struct qn_recipe *recipe,
                   int role)
{
    const int types[3][2] = {
        [QUERN_FPROP] = {recipe->x, recipe->w},
        [QUERN_DGRAD] = {recipe->dy, recipe->w},
        [QUERN_WGRAD] = {recipe->dy, recipe->x},
    };

    return role <= QN_ROLE_B ? types[p->op][role]
           : role != QN_ROLE_P && p->copies
               ? (p->op == QUERN_DGRAD ? recipe->dy : recipe->x)
               : p->d_type;
}

/* 1: the activation has two operands, forward or backward. */
static void fit_operands(const struct qn_problem *p, int role,
                         struct qn_geometry *g)
{
    if (qn_geometry_backward(p) && (role == QN_ROLE_D || role == QN_ROLE_P))
        g->columns *= 2;
    else if (qn_geometry_backward(p) && role == QN_ROLE_T)
        g->rows *= 2;
    else if (!qn_geometry_backward(p) && role == QN_ROLE_D)
        g->columns /= 2;
    else if (role == QN_ROLE_T)
        g->rows /= 2;
}

void qn_geometry_of(const struct qn_problem *p, const struct qn_recipe *recipe,
                    int role, struct qn_geometry *g)
{
    /* the axis that is not k for A and B; D's rows */
    int free_axis = role == QN_ROLE_B ? QUERN_AXIS_N : QUERN_AXIS_M;
    int major = role == QN_ROLE_A ? p->a_major : p->b_major;

    g->role = role;
    g->type = type_of(p, recipe, role);
    g->outer = free_axis;
    g->inner = role <= QN_ROLE_B ? QUERN_AXIS_K : QUERN_AXIS_N;
    if (role <= QN_ROLE_B && major == QUERN_MAJOR_MN) {
        g->outer = QUERN_AXIS_K;
        g->inner = free_axis;
    }
    if (role == QN_ROLE_T) {
        g->outer = QUERN_AXIS_N;
        g->inner = QUERN_AXIS_M;
    }
    g->gathered = p->gather == QUERN_GATHER_A && role == QN_ROLE_A;
    g->grouped = g->outer != p->ragged && g->inner != p->ragged;
    g->inner_ragged = g->inner == p->ragged;
    g->groups = g->grouped ? p->groups : 1;
    g->rows = g->gathered ? p->tokens : qn_geometry_length(p, g->outer);
    g->columns = qn_geometry_length(p, g->inner);
    if (qn_geometry_halves(p))
        fit_operands(p, role, g);
    g->pitch = g->columns;
    qn_scale_columns(p, recipe, role, &g->columns, &g->pitch);
    qn_scale_of(p, recipe, role, &g->sf);
    g->bytes = qn_geometry_spread(g, 0, 0);
}

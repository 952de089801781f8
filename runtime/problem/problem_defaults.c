/* SPDX-License-Identifier: Apache-2.0 */
/* problem_defaults.c: the defaults of a problem line. */
#include "problem/problem.h"
#include "problem/scale.h"

void qn_problem_defaults(struct qn_problem *p, const struct qn_recipe *recipe)
{
    static const struct {
        int a_major, b_major, ragged;
    } defaults[] = {
        [QUERN_FPROP] = {QUERN_MAJOR_K, QUERN_MAJOR_K, QUERN_AXIS_M},
        [QUERN_DGRAD] = {QUERN_MAJOR_K, QUERN_MAJOR_MN, QUERN_AXIS_M},
        [QUERN_WGRAD] = {QUERN_MAJOR_MN, QUERN_MAJOR_MN, QUERN_AXIS_K},
    };

    p->a_major = defaults[p->op].a_major;
    p->b_major = defaults[p->op].b_major;
    p->ragged = defaults[p->op].ragged;
    if (!recipe || !qn_scale_any(p, recipe))
        return;
    p->a_major = QUERN_MAJOR_K;
    if (p->op != QUERN_DGRAD || !recipe->scaling[QN_W].packed)
        p->b_major = QUERN_MAJOR_K;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** scatter_rules.c: rules on products that write rows anywhere.
*/
#include "problem/scatter_rules.h"
#include "base/error.h"
#include "problem/problem.h"

/* The first key that would read D, or make something else of it. */
static const char *other_key(const struct qn_problem *p)
{
    const struct {
        int is_there;
        const char *key;
    } keys[] = {{p->alpha, "alpha="},
                {p->beta, "beta="},
                {p->bias, "bias="},
                {p->activation, "activation="},
                {p->copies, "copies="},
                {p->outside, "outside="},
                {p->gather, "gather="},
                {p->lora > 0, "lora="},
                {p->dbias, "dbias="},
                {p->quantize, "quantize="},
                {p->dequantize, "dequantize="}};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].is_there)
            return keys[i].key;
    return NULL;
}

static int has_rows(const struct qn_problem *p)
{
    return p->op != QUERN_WGRAD && p->ragged == QUERN_AXIS_M &&
           p->a_major == QUERN_MAJOR_K;
}

int qn_scatter_serves(const struct qn_problem *p,
                      const struct qn_recipe *recipe)
{
    return has_rows(p) && !recipe->scaled && !other_key(p);
}

int qn_scatter_problem(const struct qn_problem *p,
                       const struct qn_recipe *recipe)
{
    const char *key = other_key(p);

    if (!p->scatter)
        return QUERN_OK;
    if (!has_rows(p))
        return qn_error_set(QUERN_EINVAL,
                            "scatter=1: fprop or dgrad with ragged=m and a "
                            "k-major a (layout=tn or nn) is expected");
    if (recipe->scaled)
        return qn_error_set(QUERN_EINVAL,
                            "scatter=1: recipe %s has scales; values without "
                            "scales are expected",
                            recipe->name);
    if (key)
        return qn_error_set(QUERN_EINVAL,
                            "scatter=1 cannot be combined with %s: rows are "
                            "written as the product makes them",
                            key);
    return QUERN_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** scatter_rules.c: rules on products that write rows anywhere.
*/
#include "problem/scatter_rules.h"
#include "base/error.h"
#include "problem/geometry.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/scale.h"

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

/* Values as they are, or codes of 8 bits with scales in fp32, which are factors
   of sums. */
static int has_operand(const struct qn_problem *p,
                       const struct qn_recipe *recipe, int role)
{
    struct qn_quantization q;
    const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);
    const int type = s ? qn_quantize_element(&q, recipe) : QUERN_TYPE_NONE;

    return !recipe->scaled ||
           (s && s->type == QUERN_F32 && !s->global && !s->packed &&
            (type == QUERN_E4M3 || type == QUERN_E5M2 || type == QUERN_I8));
}

static int has_operands(const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    return has_operand(p, recipe, QN_ROLE_A) &&
           has_operand(p, recipe, QN_ROLE_B);
}

int qn_scatter_serves(const struct qn_problem *p,
                      const struct qn_recipe *recipe)
{
    return has_rows(p) && has_operands(p, recipe) && !other_key(p);
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
    if (!has_operands(p, recipe))
        return qn_error_set(QUERN_EINVAL,
                            "scatter=1, recipe %s: values without scales are "
                            "expected, or codes of 8 bits with scales in fp32",
                            recipe->name);
    if (key)
        return qn_error_set(QUERN_EINVAL,
                            "scatter=1 cannot be combined with %s: rows are "
                            "written as the product makes them",
                            key);
    return QUERN_OK;
}

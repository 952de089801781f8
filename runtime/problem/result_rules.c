/* SPDX-License-Identifier: Apache-2.0 */
/* result_rules.c: rules on a product's result as copies. */
#include "problem/result_rules.h"
#include "problem/geometry.h"
#include "problem/quantize.h"

#include <string.h>

static int tensor_of(const struct qn_problem *p)
{
    return p->op == QUERN_DGRAD ? QN_DY : QN_X;
}

const struct qn_scaling *qn_result_source(const struct qn_problem *p,
                                          const struct qn_recipe *recipe,
                                          int role, struct qn_quantization *q)
{
    qn_quantize_clear(q);
    q->of = tensor_of(p);
    if (!p->copies || (role != QN_ROLE_D && role != QN_ROLE_T))
        return NULL;
    strcpy(q->recipe, p->recipe);
    q->work = QUERN_QUANTIZE;
    q->type = p->d_type;
    q->copies = role == QN_ROLE_D ? QUERN_ROWWISE : QUERN_COLUMNWISE;
    q->groups = p->groups;
    q->m = p->m;
    q->k = !qn_geometry_halves(p)    ? p->n
           : qn_geometry_backward(p) ? 2 * p->n
                                     : p->n / 2;
    return &recipe->scaling[q->of];
}

const char *qn_result_wrong(const struct qn_problem *p,
                            const struct qn_recipe *recipe)
{
    const int of = tensor_of(p);

    if (p->op == QUERN_WGRAD || p->ragged != QUERN_AXIS_M)
        return "only fprop and dgrad with ragged=m support them";
    if (p->beta != QUERN_BETA_ZERO)
        return "nothing is added to them, beta=0 is expected";
    if (p->copies == QUERN_COLUMNWISE)
        return "the rowwise tensor is D, so rowwise or both is expected";
    if (recipe->scaling[of].type == QUERN_TYPE_NONE)
        return of == QN_DY ? "the recipe keeps dy as it is"
                           : "the recipe keeps x as it is";
    return NULL;
}

const char *qn_result_apart(const struct qn_problem *p,
                            const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = &recipe->scaling[tensor_of(p)];

    if (s->history)
        return "the recipe's scale is known before, but no tile has the "
               "largest magnitude for its history";
    if (s->span != QN_SPAN_BLOCK || s->global)
        return "a scale of the recipe is that of more than a block, which is "
               "known only when the whole result is";
    if (s->stochastic)
        return "the recipe rounds by chance";
    return NULL;
}

void qn_result_product(const struct qn_problem *p, struct qn_problem *product)
{
    *product = *p;
    product->copies = 0;
}

void qn_result_cast(const struct qn_problem *p, const struct qn_recipe *recipe,
                    struct qn_quantization *q)
{
    qn_result_source(p, recipe, QN_ROLE_D, q);
    q->copies = p->copies;
}

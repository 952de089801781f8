/*
** result.c: a product's result as copies of an x, or where it goes back through
** an activation of a dy, quantized at once: D is the row copy, T the other.
*/
#include "result.h"
#include "error.h"
#include "types.h"

#include <string.h>

const struct qn_scaling *qn_result_source(const struct quern_problem *p,
                                          const struct qn_recipe *recipe,
                                          int role,
                                          struct quern_quantization *q)
{
    memset(q, 0, sizeof *q);
    q->of = qn_geometry_back(p) ? QUERN_DY : QUERN_X;
    if (!p->copies || (role != QN_ROLE_D && role != QN_ROLE_T))
        return NULL;
    strcpy(q->recipe, p->recipe);
    q->work = QUERN_QUANTIZE;
    q->type = p->d_type;
    q->copies = role == QN_ROLE_D ? QUERN_ROW : QUERN_COLUMN;
    q->groups = p->groups;
    q->m = p->m;
    q->k = !qn_geometry_halves(p) ? p->n
           : qn_geometry_back(p)  ? 2 * p->n
                                  : p->n / 2;
    return &recipe->scaling[q->of];
}

const char *qn_result_wrong(const struct quern_problem *p,
                            const struct qn_recipe *recipe)
{
    const struct qn_scaling *x =
        &recipe->scaling[qn_geometry_back(p) ? QUERN_DY : QUERN_X];

    if (p->copies == QUERN_COLUMN)
        return "the row copy is D, so row or both is expected";
    if (x->type == QUERN_TYPE_NONE)
        return qn_geometry_back(p) ? "the recipe keeps dy as it is"
                                   : "the recipe keeps x as it is";
    if (x->span != QN_SPAN_BLOCK || x->global)
        return "a scale of the recipe is that of more than a block, which is "
               "known only when the whole result is; quantize it";
    if (x->stochastic)
        return "the recipe rounds by chance; quantize the result";
    return NULL;
}

/*
** result.c: what copies of a product's result are, and what a cast behind the
** product needs of the workspace.
*/
#include "result.h"
#include "ahead.h"
#include "describe.h"
#include "error.h"
#include "quantize.h"
#include "types.h"

#include <string.h>

static int tensor_of(const struct quern_problem *p)
{
    return p->op == QUERN_DGRAD ? QUERN_DY : QUERN_X;
}

const struct qn_scaling *qn_result_source(const struct quern_problem *p,
                                          const struct qn_recipe *recipe,
                                          int role,
                                          struct quern_quantization *q)
{
    memset(q, 0, sizeof *q);
    q->of = tensor_of(p);
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
    const int of = tensor_of(p);

    if (p->op == QUERN_WGRAD || p->ragged != QUERN_AXIS_M)
        return "they are of what fprop and dgrad make of tokens, with ragged=m";
    if (p->beta != QUERN_BETA_ZERO)
        return "nothing is added to them, beta=0 is expected";
    if (p->copies == QUERN_COLUMN)
        return "the row copy is D, so row or both is expected";
    if (recipe->scaling[of].type == QUERN_TYPE_NONE)
        return of == QUERN_DY ? "the recipe keeps dy as it is"
                              : "the recipe keeps x as it is";
    return NULL;
}

const char *qn_result_apart(const struct quern_problem *p,
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

/* ------------------------------------------------------------ two launches */

void qn_result_product(const struct quern_problem *p,
                       struct quern_problem *product)
{
    *product = *p;
    product->copies = 0;
}

void qn_result_cast(const struct quern_problem *p,
                    const struct qn_recipe *recipe,
                    struct quern_quantization *q)
{
    qn_result_source(p, recipe, QN_ROLE_D, q);
    q->copies = p->copies;
}

void qn_result_lay_out(const struct quern_problem *p,
                       const struct qn_recipe *recipe,
                       struct qn_result_space *space)
{
    struct qn_quantize_space cast;
    struct quern_quantization q;
    struct quern_problem product;
    struct qn_geometry numbers;

    qn_result_product(p, &product);
    qn_result_cast(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &cast);
    qn_geometry_of(&product, recipe, QN_ROLE_D, &numbers);
    space->cast = qn_padded(space->cast);
    space->numbers = space->cast + qn_padded(cast.end);
    space->end = space->numbers + (size_t)qn_geometry_bytes(&numbers, 0, 0);
}

size_t qn_result_end(struct quern_context *ctx, const struct quern_problem *p,
                     const struct qn_recipe *recipe)
{
    struct qn_result_space space;
    struct quern_problem product;

    qn_result_product(p, &product);
    space.cast = qn_describe_workspace(ctx, &product, recipe);
    qn_result_lay_out(p, recipe, &space);
    return space.end;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** gather_rules.c: rules on products that read rows through indices.
*/
#include "problem/gather_rules.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/problem.h"
#include "problem/route.h"

int qn_gather_scales(const struct qn_scaling *s)
{
    const int rows =
        s->span == QN_SPAN_ROW || (s->span == QN_SPAN_BLOCK && s->rows == 1 &&
                                   s->order != QN_ORDER_TILES);

    return s->type == QUERN_TYPE_NONE ||
           (rows && s->type == QUERN_F32 && !s->global && !s->apart);
}

int qn_gather_values(const struct qn_scaling *s)
{
    return s->span == QN_SPAN_BLOCK && s->rows == 1 && !s->global;
}

int qn_gather_topk(const struct qn_problem *p)
{
    return p->topk > 1 ? p->topk : 1;
}

/* Indices are int32. */
static int check_rows(const struct qn_problem *p)
{
    if (p->tokens < 1 || p->tokens > QN_RAGGED_LIMIT)
        return qn_error_set(QUERN_EINVAL,
                            "tokens=%lld: gather=%s has 1 to %lld rows to "
                            "choose from",
                            (long long)p->tokens, qn_gather_name(p->gather),
                            (long long)QN_RAGGED_LIMIT);
    if (p->topk < 0 || p->topk > QN_MAX_TOPK)
        return qn_error_set(QUERN_EINVAL, "topk=%d: 1 to %d is expected",
                            p->topk, QN_MAX_TOPK);
    if (p->tokens * qn_gather_topk(p) > INT32_MAX)
        return qn_error_set(QUERN_EINVAL,
                            "tokens=%lld topk=%d: indices are int32, so at "
                            "most %d pairs are possible",
                            (long long)p->tokens, p->topk, INT32_MAX);
    return QUERN_OK;
}

int qn_gather_problem(const struct qn_problem *p,
                      const struct qn_recipe *recipe)
{
    const struct qn_scaling *a;

    if (!p->gather && (p->tokens || p->topk))
        return qn_error_set(QUERN_EINVAL,
                            "%s needs gather=a: rows of a are read in order",
                            p->tokens ? "tokens=" : "topk=");
    if (!p->gather)
        return QUERN_OK;
    if (p->op == QUERN_WGRAD || p->ragged != QUERN_AXIS_M ||
        p->a_major != QUERN_MAJOR_K)
        return qn_error_set(QUERN_EINVAL,
                            "gather=%s: fprop or dgrad with ragged=m and a "
                            "k-major a (layout=tn or nn) is expected",
                            qn_gather_name(p->gather));
    a = &recipe->scaling[p->op == QUERN_FPROP ? QN_X : QN_DY];
    if (!qn_gather_scales(a) && !qn_gather_values(a))
        return qn_error_set(QUERN_EINVAL,
                            "gather=%s: recipe %s scales several rows "
                            "together, and rows that are gathered need scales "
                            "of their own",
                            qn_gather_name(p->gather), recipe->name);
    if (!qn_gather_scales(a) && p->dequantize != QUERN_DEQUANTIZE_PASS)
        return qn_error_set(QUERN_EINVAL,
                            "gather=%s: recipe %s has no f32 scales, whose "
                            "rows are gathered as codes; dequantize=pass is "
                            "expected, after which they are bf16",
                            qn_gather_name(p->gather), recipe->name);
    return check_rows(p);
}

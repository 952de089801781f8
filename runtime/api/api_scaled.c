/* SPDX-License-Identifier: Apache-2.0 */
/* api_scaled.c: the scale factors of a line's operands. */
#include "api/api_use.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"
#include "problem/scale.h"

enum { TILE = 128 };

static void find_weights(const struct qn_mlp *mlp, int arg,
                         struct qn_quantization *q)
{
    const int first =
        arg == QUERN_ARG_W1_ROWWISE || arg == QUERN_ARG_W1_COLUMNWISE;

    q->of = QN_W;
    q->groups = mlp->groups;
    q->m = first ? qn_mlp_operands(mlp) : mlp->hidden;
    q->k = first ? mlp->hidden : mlp->ffn;
    q->copies = arg == QUERN_ARG_W1_ROWWISE || arg == QUERN_ARG_W2_ROWWISE
                    ? QUERN_ROWWISE
                    : QUERN_COLUMNWISE;
}

/* The quantization that a tensor is made by; `copies` names the one. */
static const struct qn_scaling *source_of(const struct qn_needs_of *n, int arg,
                                          struct qn_quantization *q)
{
    const struct qn_problem *p = &n->line->of.product;

    switch (arg) {
    case QUERN_ARG_A:
        return qn_scale_source(p, n->recipe, QN_ROLE_A, q);
    case QUERN_ARG_B:
        return qn_scale_source(p, n->recipe, QN_ROLE_B, q);
    case QUERN_ARG_D:
        return qn_result_source(p, n->recipe, QN_ROLE_D, q);
    case QUERN_ARG_D_COLUMNWISE:
        return qn_result_source(p, n->recipe, QN_ROLE_T, q);
    case QUERN_ARG_A_COLUMNWISE:
        qn_fuse_quantization(p, n->recipe, q);
        q->copies = QUERN_COLUMNWISE;
        return qn_quantize_scaling(q, n->recipe);
    case QUERN_ARG_ROWWISE:
    case QUERN_ARG_COLUMNWISE:
        *q = n->line->of.cast;
        q->copies = arg == QUERN_ARG_ROWWISE ? QUERN_ROWWISE : QUERN_COLUMNWISE;
        return qn_quantize_scaling(q, n->recipe);
    case QUERN_ARG_W1_ROWWISE:
    case QUERN_ARG_W1_COLUMNWISE:
    case QUERN_ARG_W2_ROWWISE:
    case QUERN_ARG_W2_COLUMNWISE:
        find_weights(&n->line->of.mlp, arg, q);
        return &n->recipe->scaling[QN_W];
    default:
        return NULL;
    }
}

int qn_api_scaled(const struct qn_needs_of *n, int arg,
                  struct qn_api_scales *scales)
{
    struct qn_quantization q;
    const struct qn_scaling *s = source_of(n, arg, &q);

    if (!s || s->type == QUERN_TYPE_NONE)
        return 0;
    scales->type = s->type;
    scales->global = s->global != 0;
    scales->tiled = q.of != QN_W && q.copies == QUERN_COLUMNWISE ? TILE : 0;
    qn_quantize_scales(&q, s, q.copies, &scales->shape);
    return 1;
}

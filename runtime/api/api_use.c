/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_use.c: a line's operands, their roles, and the shapes of those that
** are plain arrays. Lengths are in `base`: for the line's rows.
*/
#include "api/api_use.h"
#include "mlp/mlp_plan.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/quantize.h"

enum { ONLY = 1 << QUERN_PHASE_FORWARD };

static void read_only(struct quern_operand *o)
{
    o->read = ONLY;
}

static void write_only(struct quern_operand *o, int wanted)
{
    o->written = ONLY;
    o->optional = wanted ? 0 : ONLY;
}

static void array(struct quern_operand *o, int type, int64_t rows,
                  int64_t columns)
{
    o->type = type;
    o->ndim = columns ? 2 : 1;
    o->shape[0].base = rows;
    o->shape[1].base = columns;
}

/* Products and quantizations use these alike. */
static int is_state(int arg)
{
    return arg == QUERN_ARG_SCALE || arg == QUERN_ARG_HISTORY ||
           arg == QUERN_ARG_RANDOM || arg == QUERN_ARG_NOOP ||
           arg == QUERN_ARG_WORKSPACE;
}

static void use_state(struct quern_operand *o, int history, int random)
{
    switch (o->arg) {
    case QUERN_ARG_SCALE:
        o->read = history ? ONLY : 0;
        array(o, QUERN_F32, 2, 0);
        break;
    case QUERN_ARG_HISTORY:
        o->read = o->written = history ? ONLY : 0;
        array(o, QUERN_F32, history, 0);
        break;
    case QUERN_ARG_RANDOM:
        o->read = random ? ONLY : 0;
        array(o, QUERN_I64, 2, 0);
        break;
    case QUERN_ARG_NOOP:
        o->read = o->optional = ONLY;
        array(o, QUERN_I32, 1, 0);
        break;
    default: /* the workspace */
        o->read = o->written = ONLY;
    }
}

/* ---------------------------------------------------------------- products */

static void use_sums(const struct qn_problem *p, const struct qn_needs_of *n,
                     struct quern_operand *o)
{
    const int64_t columns =
        qn_fuse_sums(p) ? p->k : n->needs->product.args.d.shape[1];

    if (o->arg == QUERN_ARG_DBIAS && p->dbias) {
        o->written = ONLY;
        o->read = p->dbias == QUERN_DBIAS_ADD ? ONLY : 0;
        array(o, QUERN_F32, p->groups, columns);
    } else if (o->arg == QUERN_ARG_DPROB && p->dprob) {
        o->written = ONLY;
        array(o, QUERN_F32, p->m, 0);
    }
}

static void use_factors(const struct qn_problem *p, struct quern_operand *o)
{
    switch (o->arg) {
    case QUERN_ARG_ALPHA:
        o->read = p->alpha ? ONLY : 0;
        array(o, QUERN_F32, 1, 0);
        break;
    case QUERN_ARG_BETA:
        o->read = p->beta == QUERN_BETA_ANY ? ONLY : 0;
        array(o, QUERN_F32, 1, 0);
        break;
    case QUERN_ARG_BIAS:
        o->read = p->bias ? ONLY : 0;
        array(o, QUERN_F32, p->groups, p->n);
        break;
    case QUERN_ARG_GATHER:
        o->read = p->gather ? ONLY : 0;
        array(o, QUERN_I32, p->m, 0);
        break;
    case QUERN_ARG_SCATTER:
        o->read = p->scatter ? ONLY : 0;
        array(o, QUERN_I32, p->m, 0);
        break;
    case QUERN_ARG_D_ADDRESSES:
        o->read = o->optional = p->scatter ? ONLY : 0;
        array(o, QUERN_I64, p->m, 0);
        break;
    case QUERN_ARG_LORA_SCALE:
        o->read = o->optional = p->lora ? ONLY : 0;
        array(o, QUERN_F32, 1, 0);
        break;
    default: /* probabilities */
        o->read = p->probability ? ONLY : 0;
        array(o, QUERN_F32, p->m, 0);
    }
}

static void use_tensor(const struct qn_problem *p, struct quern_operand *o)
{
    switch (o->arg) {
    case QUERN_ARG_A:
        o->read = p->quantize ? 0 : ONLY;
        o->written = p->quantize ? ONLY : 0;
        o->pointers = (p->pointers & QUERN_POINTERS_A) != 0;
        break;
    case QUERN_ARG_B:
        read_only(o);
        o->pointers = (p->pointers & QUERN_POINTERS_B) != 0;
        break;
    case QUERN_ARG_C:
        read_only(o);
        o->pointers = (p->pointers & QUERN_POINTERS_C) != 0;
        break;
    case QUERN_ARG_D:
        write_only(o, 1);
        o->read = p->beta == QUERN_BETA_ONE ? ONLY : 0;
        o->pointers = (p->pointers & QUERN_POINTERS_D) != 0;
        break;
    case QUERN_ARG_PRE:
        if (qn_geometry_backward(p))
            read_only(o);
        else
            write_only(o, 0);
        break;
    case QUERN_ARG_INPUT:
    case QUERN_ARG_LORA_A:
    case QUERN_ARG_LORA_B:
        read_only(o);
        break;
    case QUERN_ARG_LORA_T:
        write_only(o, 1);
        break;
    default: /* columnwise tensors */
        write_only(o, 0);
    }
}

static void use_product(const struct qn_needs_of *n, struct quern_operand *o)
{
    const struct qn_problem *p = &n->line->of.product;

    switch (o->arg) {
    case QUERN_ARG_ALPHA:
    case QUERN_ARG_BETA:
    case QUERN_ARG_BIAS:
    case QUERN_ARG_PROB:
    case QUERN_ARG_GATHER:
    case QUERN_ARG_SCATTER:
    case QUERN_ARG_D_ADDRESSES:
    case QUERN_ARG_LORA_SCALE:
        use_factors(p, o);
        break;
    case QUERN_ARG_DBIAS:
    case QUERN_ARG_DPROB:
        use_sums(p, n, o);
        break;
    default:
        use_tensor(p, o);
    }
}

/* ----------------------------------------------------------- quantizations */

/* The copy is all that it makes. */
static int makes_one(const struct qn_needs_of *n)
{
    const struct qn_quantization *q = &n->line->of.cast;
    const int plain =
        qn_quantize_scaling(q, n->recipe)->type == QUERN_TYPE_NONE;

    return q->copies != (QUERN_ROWWISE | QUERN_COLUMNWISE) &&
           !(plain && q->dbias);
}

static void use_cast_tensor(const struct qn_needs_of *n,
                            struct quern_operand *o)
{
    const struct qn_quantization *q = &n->line->of.cast;
    const int made = q->work <= QUERN_TRANSPOSE;

    switch (o->arg) {
    case QUERN_ARG_OUTPUT:
        o->written = ONLY;
        o->read = q->work == QUERN_BIAS ? ONLY : 0;
        break;
    case QUERN_ARG_ROWWISE:
        if (q->work == QUERN_QUANTIZE)
            write_only(o, makes_one(n));
        else
            read_only(o);
        break;
    case QUERN_ARG_COLUMNWISE:
        if (made)
            write_only(o, q->work == QUERN_TRANSPOSE || makes_one(n));
        else
            read_only(o);
        break;
    default:
        read_only(o);
        o->pointers = o->arg == QUERN_ARG_INPUT && q->of == QN_W;
    }
}

/* Only these read and keep those of delayed scaling. */
static int makes_scales(const struct qn_quantization *q)
{
    return q->work == QUERN_QUANTIZE || q->work == QUERN_RESCALE ||
           q->work == QUERN_TRANSPOSE;
}

static void use_cast_state(const struct qn_quantization *q,
                           const struct qn_quantize_description *need,
                           struct quern_operand *o)
{
    use_state(o, makes_scales(q) ? need->history : 0, need->random);
    if (o->arg == QUERN_ARG_SCALE && q->work == QUERN_RESCALE)
        o->written = o->read;
}

static void use_cast(const struct qn_needs_of *n, struct quern_operand *o)
{
    const struct qn_quantization *q = &n->line->of.cast;

    switch (o->arg) {
    case QUERN_ARG_BIAS:
        o->read = qn_quantize_has_bias(q) ? ONLY : 0;
        array(o, QUERN_F32, q->groups, q->k);
        break;
    case QUERN_ARG_PROB:
        o->read = q->probability ? ONLY : 0;
        array(o, QUERN_F32, q->m, 0);
        break;
    case QUERN_ARG_DBIAS:
        o->written = q->dbias ? ONLY : 0;
        o->read = q->dbias == QUERN_DBIAS_ADD ? ONLY : 0;
        array(o, QUERN_F32, q->groups, q->k);
        break;
    case QUERN_ARG_DPROB:
        o->written = q->dprob ? ONLY : 0;
        o->read = q->dprob && !q->activation ? ONLY : 0;
        array(o, QUERN_F32, q->m, 0);
        break;
    default:
        use_cast_tensor(n, o);
    }
}

/* -------------------------------------------------------------------- MLPs */

static void use_mlp_state(const struct qn_needs_of *n, const struct qn_mlp *mlp,
                          struct quern_operand *o)
{
    enum {
        FORWARD = 1 << QUERN_PHASE_FORWARD,
        BACKWARD = 1 << QUERN_PHASE_BACKWARD,
        WGRAD = 1 << QUERN_PHASE_WGRAD,
        WEIGHTS = 1 << QUERN_PHASE_WEIGHTS,
        CASTS = FORWARD | BACKWARD | WEIGHTS
    };
    const struct qn_mlp_description *need = &n->needs->mlp;
    const int tokens = FORWARD | BACKWARD, bias = mlp->bias != 0;

    switch (o->arg) {
    case QUERN_ARG_PROB:
        o->read = mlp->probability ? tokens : 0;
        array(o, QUERN_F32, mlp->m, 0);
        break;
    case QUERN_ARG_DPROB:
        o->written = mlp->probability ? BACKWARD : 0;
        array(o, QUERN_F32, mlp->m, 0);
        break;
    case QUERN_ARG_B1:
        o->read = bias ? FORWARD | (mlp->recompute ? BACKWARD : 0) : 0;
        array(o, QUERN_F32, mlp->groups, qn_mlp_operands(mlp));
        break;
    case QUERN_ARG_B2:
        o->read = bias ? FORWARD | (mlp->probability ? BACKWARD : 0) : 0;
        array(o, QUERN_F32, mlp->groups, mlp->hidden);
        break;
    case QUERN_ARG_DB1:
    case QUERN_ARG_DB2:
        o->written = bias ? BACKWARD : 0;
        o->read = mlp->dw_beta == QUERN_BETA_ONE ? o->written : 0;
        array(o, QUERN_F32, mlp->groups,
              o->arg == QUERN_ARG_DB1 ? qn_mlp_operands(mlp) : mlp->hidden);
        break;
    case QUERN_ARG_SCALE:
        o->read = need->history ? CASTS : 0;
        array(o, QUERN_F32, QUERN_MLP_TENSORS, 2);
        break;
    case QUERN_ARG_HISTORY:
        o->read = o->written = need->history ? CASTS : 0;
        array(o, QUERN_F32, QUERN_MLP_TENSORS, need->history);
        break;
    case QUERN_ARG_RANDOM:
        o->read = need->random ? CASTS : 0;
        array(o, QUERN_I64, QUERN_MLP_TENSORS, 2);
        break;
    case QUERN_ARG_SAVED:
        o->read = BACKWARD | WGRAD;
        o->written = mlp->forward_only ? 0 : FORWARD;
        if (mlp->recompute) /* h, again */
            o->written |= BACKWARD;
        break;
    case QUERN_ARG_PENDING:
        o->read = WGRAD;
        o->written = mlp->forward_only ? 0 : BACKWARD;
        break;
    default: /* the workspace */
        o->read = o->written = CASTS | WGRAD;
    }
}

static void use_mlp_tensor(const struct qn_mlp *mlp,
                           const struct qn_mlp_use *given,
                           struct quern_operand *o)
{
    const struct qn_mlp_use use = *given;

    o->written = use.written;
    o->read = use.needed & ~o->written;
    o->optional = use.optional;
    if (o->read >> QUERN_PHASE_WGRAD & ~o->read >> QUERN_PHASE_BACKWARD & 1) {
        /* backward makes dw1 and dw2 if they are given */
        o->read |= 1 << QUERN_PHASE_BACKWARD;
        o->optional |= 1 << QUERN_PHASE_BACKWARD;
    }
    o->pointers = (mlp->pointers & use.pointers) != 0;
    if (o->arg != QUERN_ARG_DW1 && o->arg != QUERN_ARG_DW2)
        return;
    o->written |= 1 << QUERN_PHASE_BACKWARD;
    o->optional |= 1 << QUERN_PHASE_BACKWARD;
    o->read = mlp->dw_beta == QUERN_BETA_ONE ? o->written : 0;
}

static void use_mlp(const struct qn_needs_of *n, const struct qn_mlp *mlp,
                    struct quern_operand *o, int offset)
{
    const int phases = qn_api_phases(n->line);
    struct qn_mlp_use use;

    if (qn_mlp_args_use(mlp, n->recipe, (size_t)offset, &use))
        use_mlp_tensor(mlp, &use, o);
    else
        use_mlp_state(n, mlp, o);
    o->read &= phases;
    o->written &= phases;
    o->optional &= phases;
}

/* ------------------------------------------------------------------ layers */

/* Values of pairs, which only a layer has. */
static int use_pairs(const struct qn_moe *moe, struct quern_operand *o)
{
    enum {
        FORWARD = 1 << QUERN_PHASE_FORWARD,
        BACKWARD = 1 << QUERN_PHASE_BACKWARD
    };
    const int weighted = moe->mlp.probability != QUERN_WEIGHTS_NONE;

    switch (o->arg) {
    case QUERN_ARG_INDEX:
        o->read = FORWARD;
        array(o, moe->index, moe->mlp.m, moe->topk);
        return 1;
    case QUERN_ARG_PROB:
        o->read = weighted ? FORWARD | BACKWARD : 0;
        array(o, QUERN_F32, moe->mlp.m, moe->topk);
        return 1;
    case QUERN_ARG_DPROB:
        o->written = weighted ? BACKWARD : 0;
        array(o, QUERN_F32, moe->mlp.m, moe->topk);
        return 1;
    case QUERN_ARG_C:
        o->read = FORWARD; /* if there is such a tensor */
        return 1;
    case QUERN_ARG_ERRORS:
        o->written = o->optional = FORWARD;
        array(o, QUERN_I32, QN_WORKSPACE_BYTES / 4, 0);
        o->zero_bytes = QN_WORKSPACE_BYTES;
        return 1;
    case QUERN_ARG_Y_ADDRESSES:
    case QUERN_ARG_DX_ADDRESSES:
        o->read = o->arg == QUERN_ARG_Y_ADDRESSES ? FORWARD : BACKWARD;
        o->read = moe->scatter ? o->read : 0;
        array(o, QUERN_I64, moe->mlp.m, 0);
        return 1;
    default:
        return 0;
    }
}

/* x and dy are copied to rows, or cast, before the gradients of weights. */
static void use_moe(const struct qn_needs_of *n, struct quern_operand *o,
                    int offset)
{
    const struct qn_moe *moe = &n->line->of.moe;
    const int back = 1 << QUERN_PHASE_BACKWARD;
    struct qn_mlp mlp;
    int again = qn_moe_keeps(moe, n->recipe, QUERN_MLP_X) ||
                moe->mlp.probability == QUERN_WEIGHTS_X;

    qn_moe_mlp(moe, &mlp);
    again |= qn_mlp_later(&mlp, n->recipe);
    if (!use_pairs(moe, o))
        use_mlp(n, &mlp, o, offset);
    if (o->arg == QUERN_ARG_X || o->arg == QUERN_ARG_DY) {
        o->read = o->arg == QUERN_ARG_DY ? back
                  : again                ? back | 1 << QUERN_PHASE_FORWARD
                                         : 1 << QUERN_PHASE_FORWARD;
        o->optional = 0;
    }
    if (moe->scatter && (o->arg == QUERN_ARG_Y || o->arg == QUERN_ARG_DX))
        o->read = o->written = 0;
    o->read &= qn_api_phases(n->line);
    o->written &= qn_api_phases(n->line);
}

/* ------------------------------------------------------------------ routes */

/* Operands of lines that move rows. */
static void use_moves(const struct qn_route *r, struct quern_operand *o)
{
    switch (o->arg) {
    case QUERN_ARG_INVERSE:
        read_only(o);
        array(o, QUERN_I32, r->m, r->topk);
        break;
    case QUERN_ARG_PROB:
        o->read = r->probability ? ONLY : 0;
        array(o, QUERN_F32, r->m, r->topk);
        break;
    case QUERN_ARG_DPROB:
        o->written = r->dprob ? ONLY : 0;
        array(o, QUERN_F32, r->m, r->topk);
        break;
    case QUERN_ARG_OUTPUT:
        write_only(o, !r->dprob);
        break;
    case QUERN_ARG_INPUT:
    case QUERN_ARG_C:
    case QUERN_ARG_ROWS:
        read_only(o); /* if there is such a tensor */
        break;
    default:
        o->read = 0;
    }
}

static void use_route(const struct qn_route *r, struct quern_operand *o)
{
    switch (o->arg) {
    case QUERN_ARG_INDEX:
        read_only(o);
        array(o, r->index, r->m, r->topk);
        break;
    case QUERN_ARG_LENGTHS:
    case QUERN_ARG_STARTS:
        write_only(o, 0);
        array(o, QUERN_I32, r->groups + (o->arg == QUERN_ARG_STARTS), 0);
        break;
    case QUERN_ARG_GATHER:
        write_only(o, 0);
        array(o, QUERN_I32, r->m * r->topk, 0);
        break;
    case QUERN_ARG_INVERSE:
        write_only(o, 0);
        array(o, QUERN_I32, r->m, r->topk);
        break;
    case QUERN_ARG_WORKSPACE:
        o->read = o->written = ONLY;
        break;
    default:
        o->read = 0;
    }
}

int qn_api_phases(const struct qn_line *line)
{
    int all = 0;

    if (!qn_api_has_mlp(line->kind))
        return ONLY;
    for (int i = 0; i < QUERN_PHASES; i++)
        if (qn_mlp_has(&line->of.mlp, i))
            all |= 1 << i;
    return all;
}

/* --------------------------------------------------------------------- all */

void qn_api_use(const struct qn_needs_of *n, const struct qn_slot *slot,
                struct quern_operand *o)
{
    const struct qn_quantize_description *cast = &n->needs->cast;
    const struct qn_description *product = &n->needs->product;
    const int state = is_state(o->arg);

    if (n->line->kind == QN_LINE_ROUTE && n->line->of.route.work != QUERN_ROUTE)
        use_moves(&n->line->of.route, o);
    else if (n->line->kind == QN_LINE_ROUTE)
        use_route(&n->line->of.route, o);
    else if (n->line->kind == QN_LINE_MLP)
        use_mlp(n, &n->line->of.mlp, o, slot->at[QN_LINE_MLP]);
    else if (n->line->kind == QN_LINE_MOE)
        use_moe(n, o, slot->at[QN_LINE_MOE]);
    else if (n->line->kind == QN_LINE_CAST && state)
        use_cast_state(&n->line->of.cast, cast, o);
    else if (n->line->kind == QN_LINE_CAST)
        use_cast(n, o);
    else if (state)
        use_state(o, product->history, product->random);
    else
        use_product(n, o);
}

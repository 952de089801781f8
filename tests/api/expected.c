/* SPDX-License-Identifier: Apache-2.0 */
/* expected.c: operands as the comments of internal.h have them. */
#include "api.h"

#include "base/context.h"
#include "base/types.h"
#include "problem/mlp.h"

/* The position of a tensor in the arguments of products, casts and MLPs; -1:
   none. Arrays follow below. */
static const struct place {
    int arg, scaled; /* with .sf and .global */
    int at[QN_LINE_KINDS];
} places[] = {
#define P(member) (int)offsetof(struct qn_args, member), -1, -1, -1, -1
#define C(member) -1, (int)offsetof(struct qn_quantize_args, member), -1, -1, -1
#define M(member)                                                              \
    -1, -1, (int)offsetof(struct qn_mlp_args, member), -1,                     \
        (int)offsetof(struct qn_mlp_args, member)
#define PC(product, cast)                                                      \
    (int)offsetof(struct qn_args, product),                                    \
        (int)offsetof(struct qn_quantize_args, cast), -1, -1, -1
    {QUERN_ARG_A, 1, {P(a)}},
    {QUERN_ARG_B, 1, {P(b)}},
    {QUERN_ARG_C,
     0,
     {(int)offsetof(struct qn_args, c), -1, -1, -1,
      (int)offsetof(struct qn_mlp_args, residual)}},
    {QUERN_ARG_D, 1, {P(d)}},
    {QUERN_ARG_D_COLUMNWISE, 1, {P(t)}},
    {QUERN_ARG_A_COLUMNWISE, 1, {P(column)}},
    {QUERN_ARG_PRE, 0, {PC(p, saved)}},
    {QUERN_ARG_INPUT, 0, {PC(in, in)}},
    {QUERN_ARG_OUTPUT, 0, {C(out)}},
    {QUERN_ARG_ROWWISE, 1, {C(row)}},
    {QUERN_ARG_COLUMNWISE, 1, {C(column)}},
    {QUERN_ARG_X, 0, {M(x)}},
    {QUERN_ARG_Y, 0, {M(y)}},
    {QUERN_ARG_DY, 0, {M(dy)}},
    {QUERN_ARG_DX, 0, {M(dx)}},
    {QUERN_ARG_W1, 0, {M(w1)}},
    {QUERN_ARG_W2, 0, {M(w2)}},
    {QUERN_ARG_W1_ROWWISE, 1, {M(w1_row)}},
    {QUERN_ARG_W1_COLUMNWISE, 1, {M(w1_column)}},
    {QUERN_ARG_W2_ROWWISE, 1, {M(w2_row)}},
    {QUERN_ARG_W2_COLUMNWISE, 1, {M(w2_column)}},
    {QUERN_ARG_DW1, 0, {M(dw1)}},
    {QUERN_ARG_DW2, 0, {M(dw2)}},
};

void *api_expected_place(union qn_given *args, int kind, int arg,
                         enum qn_slot_form *form)
{
#define ARRAY(arg, member) [QUERN_ARG_##arg] = (char *)&args->member - base
#define ALL_MLP                                                                \
    ARRAY(WORKSPACE, mlp.workspace), ARRAY(PROB, mlp.probability),             \
        ARRAY(DPROB, mlp.dprob), ARRAY(SCALE, mlp.scale),                      \
        ARRAY(HISTORY, mlp.history), ARRAY(RANDOM, mlp.random),                \
        ARRAY(B1, mlp.b1), ARRAY(B2, mlp.b2), ARRAY(DB1, mlp.db1),             \
        ARRAY(DB2, mlp.db2), ARRAY(SAVED, mlp.saved),                          \
        ARRAY(PENDING, mlp.pending)
    const char *base = (const char *)args;
    const ptrdiff_t arrays[QN_LINE_KINDS][QUERN_ARGS_COUNT] = {
        {ARRAY(WORKSPACE, product.workspace), ARRAY(NOOP, product.noop),
         ARRAY(ALPHA, product.alpha), ARRAY(BETA, product.beta),
         ARRAY(BIAS, product.bias), ARRAY(PROB, product.probability),
         ARRAY(DBIAS, product.dbias), ARRAY(DPROB, product.dprob),
         ARRAY(SCALE, product.scale), ARRAY(HISTORY, product.history),
         ARRAY(RANDOM, product.random), ARRAY(SCATTER, product.scatter),
         ARRAY(D_ADDRESSES, product.addresses)},
        {ARRAY(WORKSPACE, cast.workspace), ARRAY(NOOP, cast.noop),
         ARRAY(BIAS, cast.bias), ARRAY(PROB, cast.probability),
         ARRAY(DBIAS, cast.dbias), ARRAY(DPROB, cast.dprob),
         ARRAY(SCALE, cast.scale), ARRAY(HISTORY, cast.history),
         ARRAY(RANDOM, cast.random)},
        [QN_LINE_MLP] = {ALL_MLP},
        [QN_LINE_MOE] = {ALL_MLP, ARRAY(INDEX, mlp.index),
                         ARRAY(ERRORS, mlp.errors),
                         ARRAY(Y_ADDRESSES, mlp.y_addresses),
                         ARRAY(DX_ADDRESSES, mlp.dx_addresses)}};
#undef ALL_MLP
#undef ARRAY

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int at = places[i].at[kind], apart = arg - places[i].arg;

        if (at < 0 || apart < 0 || apart > (places[i].scaled ? 2 : 0))
            continue;
        *form = (enum qn_slot_form)apart;
        return (char *)args + at;
    }
    *form = QN_SLOT_ARRAY;
    return arrays[kind][arg] ? (char *)args + arrays[kind][arg] : NULL;
}

/* ------------------------------------------------------------------ arrays */

static int is(struct api_expected *e, int there, int type, int64_t rows,
              int64_t columns)
{
    e->type = type;
    e->ndim = columns ? 2 : 1;
    e->shape[0] = rows;
    e->shape[1] = columns;
    e->bytes = rows * (columns ? columns : 1) * qn_type_bits(type) / 8;
    e->alignment = (size_t)qn_type_bits(type) / 8;
    return there;
}

/* Rows of a bias are read in pairs. */
static int pairs(struct api_expected *e, int there, int64_t rows,
                 int64_t columns)
{
    is(e, there, QUERN_F32, rows, columns);
    e->alignment = 8;
    return there;
}

static int bytes(struct api_expected *e, int there, size_t count,
                 size_t alignment)
{
    e->bytes = (int64_t)count;
    e->alignment = alignment;
    return there;
}

static int of_product(const struct qn_problem *p,
                      const struct qn_description *need, int arg,
                      struct api_expected *e)
{
    const int64_t width = p->quantize ? p->k : need->args.d.shape[1];

    switch (arg) {
    case QUERN_ARG_WORKSPACE:
        return bytes(e, 1, need->workspace_bytes, 16);
    case QUERN_ARG_NOOP:
        return is(e, 1, QUERN_I32, 1, 0);
    case QUERN_ARG_ALPHA:
        return is(e, p->alpha, QUERN_F32, 1, 0);
    case QUERN_ARG_BETA:
        return is(e, p->beta == QUERN_BETA_ANY, QUERN_F32, 1, 0);
    case QUERN_ARG_BIAS:
        return pairs(e, p->bias, p->groups, p->n);
    case QUERN_ARG_PROB:
        return is(e, p->probability, QUERN_F32, p->m, 0);
    case QUERN_ARG_DBIAS:
        return is(e, p->dbias, QUERN_F32, p->groups,
                  p->activation ? need->args.d.shape[1] : width);
    case QUERN_ARG_DPROB:
        return is(e, p->dprob, QUERN_F32, p->m, 0);
    case QUERN_ARG_SCALE:
        return is(e, need->history, QUERN_F32, 2, 0);
    case QUERN_ARG_HISTORY:
        return is(e, need->history, QUERN_F32, need->history, 0);
    case QUERN_ARG_RANDOM:
        return is(e, need->random, QUERN_I64, 2, 0);
    case QUERN_ARG_SCATTER:
        return is(e, p->scatter, QUERN_I32, p->m, 0);
    case QUERN_ARG_D_ADDRESSES:
        return is(e, p->scatter, QUERN_I64, p->m, 0);
    default:
        return 0;
    }
}

static int of_cast(const struct qn_quantization *q,
                   const struct qn_quantize_description *need, int arg,
                   struct api_expected *e)
{
    const int delayed = q->work == QUERN_QUANTIZE || q->work == QUERN_RESCALE ||
                                q->work == QUERN_TRANSPOSE
                            ? need->history
                            : 0;

    switch (arg) {
    case QUERN_ARG_WORKSPACE:
        return bytes(e, 1, need->workspace_bytes, 16);
    case QUERN_ARG_NOOP:
        return is(e, 1, QUERN_I32, 1, 0);
    case QUERN_ARG_BIAS:
        return pairs(e, q->work == QUERN_BIAS || (q->dprob && !q->activation),
                     q->groups, q->k);
    case QUERN_ARG_PROB:
        return is(e, q->probability, QUERN_F32, q->m, 0);
    case QUERN_ARG_DBIAS:
        return is(e, q->dbias, QUERN_F32, q->groups, q->k);
    case QUERN_ARG_DPROB:
        return is(e, q->dprob, QUERN_F32, q->m, 0);
    case QUERN_ARG_SCALE:
        return is(e, delayed, QUERN_F32, 2, 0);
    case QUERN_ARG_HISTORY:
        return is(e, delayed, QUERN_F32, delayed, 0);
    case QUERN_ARG_RANDOM:
        return is(e, need->random, QUERN_I64, 2, 0);
    default:
        return 0;
    }
}

static int of_mlp(const struct qn_mlp *mlp,
                  const struct qn_mlp_description *need, int arg,
                  struct api_expected *e)
{
    const int64_t pre = need->args.w1.shape[1];

    switch (arg) {
    case QUERN_ARG_WORKSPACE:
        return bytes(e, 1, need->workspace_bytes, 16);
    case QUERN_ARG_SAVED:
        return bytes(e, need->saved_bytes > 0, need->saved_bytes, 16);
    case QUERN_ARG_PENDING:
        return bytes(e, need->pending_bytes > 0, need->pending_bytes, 16);
    case QUERN_ARG_PROB:
    case QUERN_ARG_DPROB:
        return is(e, mlp->probability, QUERN_F32, mlp->m, 0);
    case QUERN_ARG_B1:
        return pairs(e, mlp->bias, mlp->groups, pre);
    case QUERN_ARG_B2:
        return pairs(e, mlp->bias, mlp->groups, mlp->hidden);
    case QUERN_ARG_DB1:
        return is(e, mlp->bias, QUERN_F32, mlp->groups, pre);
    case QUERN_ARG_DB2:
        return is(e, mlp->bias, QUERN_F32, mlp->groups, mlp->hidden);
    case QUERN_ARG_SCALE:
        return is(e, need->history, QUERN_F32, QUERN_MLP_TENSORS, 2);
    case QUERN_ARG_HISTORY:
        return is(e, need->history, QUERN_F32, QUERN_MLP_TENSORS,
                  need->history);
    case QUERN_ARG_RANDOM:
        return is(e, need->random, QUERN_I64, QUERN_MLP_TENSORS, 2);
    default:
        return 0;
    }
}

/* Arrays of pairs; the others are an MLP's. */
static int of_moe(const struct qn_moe *moe,
                  const struct qn_mlp_description *need, int arg,
                  struct api_expected *e)
{
    const int weighted = moe->mlp.probability != QUERN_WEIGHTS_NONE;

    switch (arg) {
    case QUERN_ARG_INDEX:
        return is(e, 1, moe->index, moe->mlp.m, moe->topk);
    case QUERN_ARG_PROB:
        return is(e, weighted, QUERN_F32, moe->mlp.m, moe->topk);
    case QUERN_ARG_DPROB:
        return is(e, weighted && !moe->mlp.forward_only, QUERN_F32, moe->mlp.m,
                  moe->topk);
    case QUERN_ARG_ERRORS:
        return is(e, 1, QUERN_I32, 64, 0);
    case QUERN_ARG_Y_ADDRESSES:
        return is(e, moe->scatter, QUERN_I64, moe->mlp.m, 0);
    case QUERN_ARG_DX_ADDRESSES:
        return is(e, moe->scatter && !moe->mlp.forward_only, QUERN_I64,
                  moe->mlp.m, 0);
    default:
        return of_mlp(&moe->mlp, need, arg, e);
    }
}

/* ----------------------------------------------------------------- tensors */

static int of_tensor(const struct qn_tensor *t, enum qn_slot_form form,
                     struct api_expected *e)
{
    if (form == QN_SLOT_TENSOR) {
        e->type = t->type;
        e->ndim = t->ndim;
        memcpy(e->shape, t->shape, sizeof e->shape);
        for (int i = t->ndim; i < QUERN_MAX_DIMS; i++)
            e->shape[i] = 0;
        e->pitch = t->stride ? t->stride : t->ndim ? t->shape[t->ndim - 1] : 0;
        e->bytes = (int64_t)t->bytes;
        e->alignment = t->alignment;
        return t->ndim > 0;
    }
    e->bytes = (int64_t)(form == QN_SLOT_SF ? t->sf_bytes : t->global_bytes);
    e->alignment = 16;
    e->ndim = form == QN_SLOT_SF ? -1 : 1;
    return e->bytes > 0;
}

static int sizes(const struct qn_line *line, int arg, struct api_expected *e)
{
    struct qn_line other = *line;
    const int groups = qn_api_has_mlp(line->kind)   ? line->of.mlp.groups
                       : line->kind == QN_LINE_CAST ? line->of.cast.groups
                                                    : line->of.product.groups;

    return is(e, qn_api_rows(&other) && line->kind != QN_LINE_MOE, QUERN_I32,
              groups + (arg == QUERN_ARG_STARTS), 0);
}

int api_expected_find(const struct qn_line *line, const union qn_needs *needs,
                      int arg, struct api_expected *e)
{
    union qn_needs copy = *needs;
    enum qn_slot_form form;
    void *at;

    memset(e, 0, sizeof *e);
    if (arg <= QUERN_ARG_ENDS)
        return sizes(line, arg, e);
    at = api_expected_place((union qn_given *)(void *)&copy, line->kind, arg,
                            &form);
    if (!at || (line->kind == QN_LINE_MOE && line->of.moe.scatter &&
                (arg == QUERN_ARG_Y || arg == QUERN_ARG_DX)))
        return 0; /* addresses take the place of y and dx */
    if (form != QN_SLOT_ARRAY)
        return of_tensor(at, form, e);
    return line->kind == QN_LINE_MOE
               ? of_moe(&line->of.moe, &needs->mlp, arg, e)
           : line->kind == QN_LINE_MLP
               ? of_mlp(&line->of.mlp, &needs->mlp, arg, e)
           : line->kind == QN_LINE_CAST
               ? of_cast(&line->of.cast, &needs->cast, arg, e)
               : of_product(&line->of.product, &needs->product, arg, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* api_slots.c: where the arguments of each kind of line have an operand. */
#include "api/api.h"

#include <stddef.h>

#define NONE      -1
#define P(member) (int)offsetof(struct qn_args, member)
#define C(member) (int)offsetof(struct qn_quantize_args, member)
#define M(member) (int)offsetof(struct qn_mlp_args, member)
#define R(member) (int)offsetof(struct qn_route_args, member)
#define ARRAY(arg, product, cast, mlp)                                         \
    {                                                                          \
        QUERN_ARG_##arg, QN_SLOT_ARRAY,                                        \
        {                                                                      \
            product, cast, mlp, NONE, mlp                                      \
        }                                                                      \
    }
#define ROUTE(arg, route)                                                      \
    {                                                                          \
        QUERN_ARG_##arg, QN_SLOT_ARRAY,                                        \
        {                                                                      \
            NONE, NONE, NONE, route, NONE                                      \
        }                                                                      \
    }
#define TENSOR(arg, product, cast, mlp)                                        \
    {                                                                          \
        QUERN_ARG_##arg, QN_SLOT_TENSOR,                                       \
        {                                                                      \
            product, cast, mlp, NONE, mlp                                      \
        }                                                                      \
    }
#define SCALED(arg, product, cast, mlp)                                        \
    TENSOR(arg, product, cast, mlp),                                           \
        {QUERN_ARG_##arg##_SF, QN_SLOT_SF, {product, cast, mlp, NONE, mlp}},   \
    {                                                                          \
        QUERN_ARG_##arg##_GLOBAL, QN_SLOT_GLOBAL,                              \
        {                                                                      \
            product, cast, mlp, NONE, mlp                                      \
        }                                                                      \
    }

/* Sizes that a line reads are not here: products have them in the tensor that
   is ragged. */
const struct qn_slot qn_api_slots[] = {
    {QUERN_ARG_WORKSPACE,
     QN_SLOT_ARRAY,
     {P(workspace), C(workspace), M(workspace), R(workspace), M(workspace)}},
    ROUTE(LENGTHS, R(lengths)),
    ROUTE(STARTS, R(starts)),
    {QUERN_ARG_ERRORS, QN_SLOT_ARRAY, {NONE, NONE, NONE, NONE, M(errors)}},
    {QUERN_ARG_INDEX, QN_SLOT_ARRAY, {NONE, NONE, NONE, R(index), M(index)}},
    {QUERN_ARG_GATHER, QN_SLOT_ARRAY, {P(gather), NONE, NONE, R(gather), NONE}},
    ROUTE(INVERSE, R(inverse)),
    ARRAY(SCATTER, P(scatter), NONE, NONE),
    ARRAY(D_ADDRESSES, P(addresses), NONE, NONE),
    ARRAY(NOOP, P(noop), C(noop), NONE),
    ARRAY(ALPHA, P(alpha), NONE, NONE),
    ARRAY(BETA, P(beta), NONE, NONE),
    ARRAY(BIAS, P(bias), C(bias), NONE),
    {QUERN_ARG_PROB,
     QN_SLOT_ARRAY,
     {P(probability), C(probability), M(probability), R(probability),
      M(probability)}},
    ARRAY(DBIAS, P(dbias), C(dbias), NONE),
    {QUERN_ARG_DPROB,
     QN_SLOT_ARRAY,
     {P(dprob), C(dprob), M(dprob), R(dprob), M(dprob)}},
    ARRAY(SCALE, P(scale), C(scale), M(scale)),
    ARRAY(HISTORY, P(history), C(history), M(history)),
    ARRAY(RANDOM, P(random), C(random), M(random)),
    SCALED(A, P(a), NONE, NONE),
    SCALED(B, P(b), NONE, NONE),
    {QUERN_ARG_C, QN_SLOT_TENSOR, {P(c), NONE, NONE, R(residual), M(residual)}},
    SCALED(D, P(d), NONE, NONE),
    SCALED(D_COLUMNWISE, P(t), NONE, NONE),
    SCALED(A_COLUMNWISE, P(column), NONE, NONE),
    TENSOR(PRE, P(p), C(saved), NONE),
    {QUERN_ARG_INPUT, QN_SLOT_TENSOR, {P(in), C(in), NONE, R(in), NONE}},
    {QUERN_ARG_OUTPUT, QN_SLOT_TENSOR, {NONE, C(out), NONE, R(out), NONE}},
    {QUERN_ARG_ROWS, QN_SLOT_TENSOR, {NONE, NONE, NONE, R(rows), NONE}},
    SCALED(ROWWISE, NONE, C(row), NONE),
    SCALED(COLUMNWISE, NONE, C(column), NONE),
    TENSOR(X, NONE, NONE, M(x)),
    TENSOR(Y, NONE, NONE, M(y)),
    TENSOR(DY, NONE, NONE, M(dy)),
    TENSOR(DX, NONE, NONE, M(dx)),
    TENSOR(W1, NONE, NONE, M(w1)),
    TENSOR(W2, NONE, NONE, M(w2)),
    SCALED(W1_ROWWISE, NONE, NONE, M(w1_row)),
    SCALED(W1_COLUMNWISE, NONE, NONE, M(w1_column)),
    SCALED(W2_ROWWISE, NONE, NONE, M(w2_row)),
    SCALED(W2_COLUMNWISE, NONE, NONE, M(w2_column)),
    TENSOR(DW1, NONE, NONE, M(dw1)),
    TENSOR(DW2, NONE, NONE, M(dw2)),
    ARRAY(B1, NONE, NONE, M(b1)),
    ARRAY(B2, NONE, NONE, M(b2)),
    ARRAY(DB1, NONE, NONE, M(db1)),
    ARRAY(DB2, NONE, NONE, M(db2)),
    TENSOR(LORA_A, P(lora_a), NONE, NONE),
    TENSOR(LORA_B, P(lora_b), NONE, NONE),
    TENSOR(LORA_T, P(lora_t), NONE, NONE),
    ARRAY(LORA_SCALE, P(lora_scale), NONE, NONE),
    {QUERN_ARG_Y_ADDRESSES,
     QN_SLOT_ARRAY,
     {NONE, NONE, NONE, NONE, M(y_addresses)}},
    {QUERN_ARG_DX_ADDRESSES,
     QN_SLOT_ARRAY,
     {NONE, NONE, NONE, NONE, M(dx_addresses)}},
    ARRAY(SAVED, NONE, NONE, M(saved)),
    ARRAY(PENDING, NONE, NONE, M(pending)),
};
const int qn_api_slot_count = sizeof qn_api_slots / sizeof qn_api_slots[0];

const struct qn_slot *qn_api_slot(int arg, int kind)
{
    for (int i = 0; i < qn_api_slot_count; i++)
        if (qn_api_slots[i].arg == arg && qn_api_slots[i].at[kind] >= 0)
            return &qn_api_slots[i];
    return NULL;
}

struct qn_place qn_api_place(const struct quern_operand *o,
                             const struct qn_slot *slot, int kind)
{
    static const size_t fields[] = {
        [QN_SLOT_TENSOR] = offsetof(struct qn_tensor, data),
        [QN_SLOT_SF] = offsetof(struct qn_tensor, sf),
        [QN_SLOT_GLOBAL] = offsetof(struct qn_tensor, global),
        [QN_SLOT_ARRAY] = 0};
    const int used = o->read | o->written;
    const int form = slot ? (int)slot->form : QN_SLOT_ARRAY,
              scales = form == QN_SLOT_SF || form == QN_SLOT_GLOBAL;

    return (struct qn_place){
        .arg = o->arg,
        .at = slot ? slot->at[kind] + (int)fields[form] : -1,
        .has_rows = form == QN_SLOT_TENSOR || form == QN_SLOT_SF,
        .can_be_null = !scales && (o->optional & used) == used,
        .low = o->alignment - 1};
}

const char *qn_api_name(int arg)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        QUERN_ARGS(NAME)
#undef NAME
    };

    return names[arg];
}

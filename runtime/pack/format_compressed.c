/* SPDX-License-Identifier: Apache-2.0 */
/* format_compressed.c: integers of 4 bits as compressed-tensors writes them
   (pack-quantized): "weight_packed" int32 [n, k/8], eight input features in a
   word from its lowest bits up, 8 more than they mean; "weight_scale" [n,
   k/group]; "weight_shape" int64 or int32 [2]; where zero points differ
   "weight_zero_point" int32 [n/8, k/group], eight output features in a word, 8
   more, too; "weight_g_idx" int32 [k], the group of each input feature. */
#include "pack/format.h"

enum { WORD = 8 }; /* codes in an int32 */

static int is(const struct qn_checkpoint *c,
              const struct qn_checkpoint_tensor *t)
{
    return t->t->type == QN_ST_I32 && t->t->ndim == 2 &&
           qn_format_sibling(c, t, "weight_packed", "weight_scale") != NULL;
}

/* The sizes that the codes and the scales tell must be those that it says. */
static int check_shape(struct qn_pack *pack, const char *name,
                       const struct qn_format_piece *p)
{
    static const int64_t two[] = {2};
    const struct qn_checkpoint_tensor *there = qn_format_sibling(
        pack->checkpoint, p->codes, "weight_packed", "weight_shape");
    const int type =
        there && there->t->type == QN_ST_I32 ? QN_ST_I32 : QN_ST_I64;
    struct qn_checkpoint_tensor *shape;
    int code =
        qn_format_tensor(pack, name, "weight_shape", type, 1, two, &shape);

    return code ? code : qn_pack_check_shape(pack, shape, p->rows, p->k);
}

static int add_scales(struct qn_pack *pack, const char *name,
                      struct qn_format_piece *p, int64_t *groups)
{
    const int code = qn_format_scales(pack, name, "weight_scale", 1, p, groups);

    if (code)
        return code;
    p->scale = qn_format_rows(*groups);
    return qn_format_fit(pack, p, *groups);
}

/* Without a tensor of zero points all of them are the code in the middle. */
static int add_zeros(struct qn_pack *pack, const char *name,
                     struct qn_format_piece *p, int64_t groups)
{
    const int64_t words[] = {p->rows / WORD, groups};
    const struct qn_pack_layout layout = {
        .rows = {WORD, WORD * groups, 1, NULL},
        .columns = {1, WORD, 0, NULL},
    };
    struct qn_checkpoint_tensor *zeros;
    int code;

    if (!qn_format_sibling(pack->checkpoint, p->codes, "weight_packed",
                           "weight_zero_point"))
        return qn_zeros_none(pack, p);
    code = qn_format_tensor(pack, name, "weight_zero_point", QN_ST_I32, 2,
                            words, &zeros);
    return code ? code : qn_zeros_add(pack, p, zeros, layout);
}

static int add_order(struct qn_pack *pack, const char *name,
                     const struct qn_format_piece *p, int64_t groups)
{
    const int64_t each[] = {p->k};
    struct qn_checkpoint_tensor *order;
    int code;

    if (!qn_format_sibling(pack->checkpoint, p->codes, "weight_packed",
                           "weight_g_idx"))
        return QUERN_OK;
    code = qn_format_tensor(pack, name, "weight_g_idx", QN_ST_I32, 1, each,
                            &order);
    return code ? code : qn_pack_check_order(pack, order, p->k / groups);
}

static int piece(struct qn_pack *pack, const char *name,
                 struct qn_format_piece *p)
{
    int64_t groups;
    int code = qn_format_tensor(pack, name, "weight_packed", QN_ST_I32, 2, NULL,
                                &p->codes);

    if (code)
        return code;
    p->rows = p->codes->t->shape[0];
    p->k = WORD * p->codes->t->shape[1];
    p->code = qn_format_rows(p->k);
    code = check_shape(pack, name, p);
    if (!code)
        code = add_scales(pack, name, p, &groups);
    if (!code)
        code = add_zeros(pack, name, p, groups);
    return code ? code : add_order(pack, name, p, groups);
}

const struct qn_format qn_format_compressed = {
    .name = "compressed-tensors",
    .title = "compressed-tensors",
    .recipe = "w4a16_int4",
    .zeros = "weight_zero_point",
    .stored = "w4a16_int4_zeros",
    .codes = "weight_packed",
    .is = is,
    .plan = qn_expert_plan,
    .piece = piece,
};

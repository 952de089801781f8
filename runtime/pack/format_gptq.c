/* SPDX-License-Identifier: Apache-2.0 */
/* format_gptq.c: integers of 4 bits as GPTQ writes them: "qweight" int32
   [k/8, n], eight input features in a word from its lowest bits up, "scales"
   [k/group, n], "qzeros" int32 [k/group, n/8], zero points less one unless
   config.json says checkpoint_format gptq_v2, and "g_idx" int32 [k], the group
   of each input feature. */
#include "pack/format.h"

enum { WORD = 8 }; /* codes in an int32 */

static int is(const struct qn_checkpoint *c,
              const struct qn_checkpoint_tensor *t)
{
    const struct qn_checkpoint_tensor *scales =
        qn_format_sibling(c, t, "qweight", "scales");

    return t->t->type == QN_ST_I32 && t->t->ndim == 2 && scales &&
           scales->t->ndim == 2 && t->t->shape[1] == scales->t->shape[1];
}

/* Zero points, and the rule by which the order needs no memory. */
static int add_zeros(struct qn_pack *pack, const char *name,
                     struct qn_format_piece *p, int64_t groups)
{
    const int64_t words[] = {groups, p->rows / WORD}, each[] = {p->k};
    struct qn_checkpoint_tensor *zeros, *order;
    int code =
        qn_format_tensor(pack, name, "qzeros", QN_ST_I32, 2, words, &zeros);

    if (!code)
        code = qn_zeros_add(pack, p, zeros, p->scale);
    if (code ||
        !qn_format_sibling(pack->checkpoint, p->codes, "qweight", "g_idx"))
        return code;
    code = qn_format_tensor(pack, name, "g_idx", QN_ST_I32, 1, each, &order);
    return code
               ? code
               : qn_pack_check_order(pack, order, (p->k + groups - 1) / groups);
}

static int piece(struct qn_pack *pack, const char *name,
                 struct qn_format_piece *p)
{
    int64_t groups;
    int code =
        qn_format_tensor(pack, name, "qweight", QN_ST_I32, 2, NULL, &p->codes);

    if (code)
        return code;
    p->k = WORD * p->codes->t->shape[0];
    p->rows = p->codes->t->shape[1];
    code = qn_format_integers(pack, name, p, &groups);
    if (!code)
        code = add_zeros(pack, name, p, groups);
    p->code = (struct qn_pack_layout){
        .rows = {1, WORD, 0, NULL},
        .columns = {WORD, WORD * p->rows, 1, NULL},
    };
    return code;
}

const struct qn_format qn_format_gptq = {
    .name = "gptq",
    .title = "GPTQ",
    .recipe = "w4a16_int4",
    .zeros = "qzeros",
    .stored = "w4a16_int4_zeros",
    .less = 1,
    .codes = "qweight",
    .is = is,
    .plan = qn_expert_plan,
    .piece = piece,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* format_awq.c: integers of 4 bits as AWQ writes them (version gemm): "qweight"
   int32 [k, n/8], eight output features in a word in the order below, "qzeros"
   int32 [k/group, n/8] in the same order, and "scales" [k/group, n]. */
#include "pack/format.h"

enum { WORD = 8 }; /* codes in an int32 */

/* Which four bits of a word have output feature i. */
static const unsigned char order[WORD] = {0, 4, 1, 5, 2, 6, 3, 7};

static int is(const struct qn_checkpoint *c,
              const struct qn_checkpoint_tensor *t)
{
    const struct qn_checkpoint_tensor *scales =
        qn_format_sibling(c, t, "qweight", "scales");

    return t->t->type == QN_ST_I32 && t->t->ndim == 2 && scales &&
           scales->t->ndim == 2 &&
           t->t->shape[1] == scales->t->shape[1] / WORD &&
           scales->t->shape[1] % WORD == 0;
}

static int piece(struct qn_pack *pack, const char *name,
                 struct qn_format_piece *p)
{
    struct qn_checkpoint_tensor *zeros;
    int64_t words[2];
    int code =
        qn_format_tensor(pack, name, "qweight", QN_ST_I32, 2, NULL, &p->codes);

    if (code)
        return code;
    p->k = p->codes->t->shape[0];
    words[1] = p->codes->t->shape[1];
    p->rows = WORD * words[1];
    p->code = (struct qn_pack_layout){
        .rows = {WORD, WORD, 1, order},
        .columns = {1, p->rows, 0, NULL},
    };
    code = qn_format_integers(pack, name, p, &words[0]);
    if (!code)
        code =
            qn_format_tensor(pack, name, "qzeros", QN_ST_I32, 2, words, &zeros);
    return code ? code : qn_zeros_add(pack, p, zeros, p->code);
}

const struct qn_format qn_format_awq = {
    .name = "awq",
    .title = "AWQ",
    .recipe = "w4a16_int4",
    .zeros = "qzeros",
    .stored = "w4a16_int4_zeros",
    .codes = "qweight",
    .is = is,
    .plan = qn_expert_plan,
    .piece = piece,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* format_deepseek.c: FP8 weights as DeepSeek-V3 has them: "weight" e4m3 [n, k]
   and "weight_scale_inv" fp32, one for 128 x 128 values. */
#include "pack/format.h"

enum { BLOCK = 128 };

static int is(const struct qn_checkpoint *c,
              const struct qn_checkpoint_tensor *t)
{
    return t->t->type == QN_ST_F8_E4M3 &&
           qn_format_sibling(c, t, "weight", "weight_scale_inv");
}

static int piece(struct qn_pack *pack, const char *name,
                 struct qn_format_piece *p)
{
    int64_t blocks[2];
    int code = qn_format_tensor(pack, name, "weight", QN_ST_F8_E4M3, 2, NULL,
                                &p->codes);

    if (code)
        return code;
    p->rows = p->codes->t->shape[0];
    p->k = p->codes->t->shape[1];
    blocks[0] = (p->rows + BLOCK - 1) / BLOCK;
    blocks[1] = (p->k + BLOCK - 1) / BLOCK;
    code = qn_format_tensor(pack, name, "weight_scale_inv", QN_ST_F32, 2,
                            blocks, &p->scales);
    if (!code)
        code = qn_weight_fits(pack, p->scales, 1U << QUERN_E4M3, QUERN_F32,
                              BLOCK, BLOCK);
    p->code = qn_format_rows(p->k);
    p->scale = qn_format_rows(blocks[1]);
    return code ? code : qn_pack_check_numbers(pack, p->scales);
}

const struct qn_format qn_format_deepseek = {
    .name = "deepseek",
    .title = "FP8 in blocks (DeepSeek-V3)",
    .recipe = "w8a16_fp8_block",
    .codes = "weight",
    .is = is,
    .plan = qn_expert_plan,
    .piece = piece,
};

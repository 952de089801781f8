/* SPDX-License-Identifier: Apache-2.0 */
/* format_nvfp4.c: NVFP4 as NVIDIA's ModelOpt writes it: "weight" uint8
   [n, k/2], the even value in the lower half of a byte, "weight_scale" e4m3
   [n, k/16] and "weight_scale_2" fp32, one for the weight. A value is the
   product of the three. */
#include "pack/format.h"

enum { BLOCK = 16 };

static int is(const struct qn_checkpoint *c,
              const struct qn_checkpoint_tensor *t)
{
    return t->t->type == QN_ST_U8 &&
           qn_format_sibling(c, t, "weight", "weight_scale_2");
}

/* fp32, of no axis or of one value. */
static int get_global(const struct qn_pack *pack, const char *name,
                      struct qn_checkpoint_tensor **tensor)
{
    int code = qn_format_tensor(pack, name, "weight_scale_2", QN_ST_F32, -1,
                                NULL, tensor);

    if (!code && (*tensor)->t->bytes != sizeof(float))
        return qn_checkpoint_wrong(pack->checkpoint, *tensor,
                                   "it must be one value");
    return code;
}

static int piece(struct qn_pack *pack, const char *name,
                 struct qn_format_piece *p)
{
    int64_t blocks[2];
    int code =
        qn_format_tensor(pack, name, "weight", QN_ST_U8, 2, NULL, &p->codes);

    if (code)
        return code;
    p->rows = blocks[0] = p->codes->t->shape[0];
    p->k = 2 * p->codes->t->shape[1];
    blocks[1] = p->k / BLOCK;
    if (p->k % BLOCK)
        return qn_checkpoint_wrong(pack->checkpoint, p->codes,
                                   "%d values must share a scale, and k is "
                                   "%lld",
                                   BLOCK, (long long)p->k);
    code = qn_format_tensor(pack, name, "weight_scale", QN_ST_F8_E4M3, 2,
                            blocks, &p->scales);
    if (!code)
        code = get_global(pack, name, &p->global);
    if (!code)
        code = qn_weight_fits(pack, p->scales, 1U << QUERN_E2M1, QUERN_E4M3, 1,
                              BLOCK);
    p->code = qn_format_rows(p->k);
    p->scale = qn_format_rows(blocks[1]);
    if (!code)
        code = qn_pack_check_numbers(pack, p->scales);
    return code ? code : qn_pack_check_numbers(pack, p->global);
}

const struct qn_format qn_format_nvfp4 = {
    .name = "nvfp4",
    .title = "NVFP4 (ModelOpt)",
    .recipe = "w4a16_nvfp4",
    .codes = "weight",
    .is = is,
    .plan = qn_expert_plan,
    .piece = piece,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* format_gpt_oss.c: MXFP4 as gpt-oss has it, all experts of a layer in one
   tensor: "gate_up_proj_blocks" uint8 [experts, 2 ffn, hidden/32, 16], the even
   value in the lower half of a byte, "_scales" e8m0 uint8 [experts, 2 ffn,
   hidden/32] and "_bias" bf16 [experts, 2 ffn]; "down_proj_" alike. Rows of
   gate and up alternate, and stay so. The folder original/ of the model has the
   same tensors by other names. */
#include "pack/format.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32 };

/* How a layer's tensors are called: the two weights, and their parts. */
struct names {
    const char *w1, *w2, *blocks, *scales;
};

static const struct names usual = {"gate_up_proj", "down_proj", "_blocks",
                                   "_scales"};
static const struct names original = {"mlp1", "mlp2", "_weight.blocks",
                                      "_weight.scales"};

static const struct names *names_of(const struct qn_pack *pack)
{
    return pack->format == &qn_format_gpt_oss ? &usual : &original;
}

static int is(const struct qn_checkpoint *c,
              const struct qn_checkpoint_tensor *t)
{
    (void)c;
    return t->t->type == QN_ST_U8;
}

/* The tensors of one of a layer's weights. */
struct weight {
    struct qn_checkpoint_tensor *blocks, *scales;
    int64_t experts, rows, k;
};

static int read_weight(struct qn_pack *pack, const char *layer,
                       const char *name, struct weight *w)
{
    char part[64];
    const int64_t *shape;
    int code;

    snprintf(part, sizeof part, "%s%s", name, names_of(pack)->blocks);
    code = qn_format_tensor(pack, layer, part, QN_ST_U8, 4, NULL, &w->blocks);
    if (code)
        return code;
    shape = w->blocks->t->shape;
    if (shape[0] < 1 || shape[0] > QUERN_MAX_GROUPS || shape[3] != BLOCK / 2)
        return qn_checkpoint_wrong(pack->checkpoint, w->blocks,
                                   "[experts, rows, k/32, 16] is expected, "
                                   "with 1 to %d experts",
                                   QUERN_MAX_GROUPS);
    w->experts = shape[0];
    w->rows = shape[1];
    w->k = BLOCK * shape[2];
    snprintf(part, sizeof part, "%s%s", name, names_of(pack)->scales);
    code = qn_format_tensor(pack, layer, part, QN_ST_U8, 3, shape, &w->scales);
    if (!code)
        code = qn_weight_fits(pack, w->scales, 1U << QUERN_E2M1, QUERN_E8M0, 1,
                              BLOCK);
    if (!code)
        code = qn_pack_check_e8m0(pack, w->scales);
    if (!code && qn_weight_rebased(pack))
        code = qn_pack_check_rebased(pack, w->scales, w->blocks);
    return code;
}

static int put_weight(struct qn_pack *pack, const char *layer, const char *name,
                      const struct weight *w)
{
    struct qn_weight op;
    struct qn_format_piece piece = {
        .rows = w->rows,
        .k = w->k,
        .codes = w->blocks,
        .scales = w->scales,
        .codes_bytes = w->blocks->t->bytes / (uint64_t)w->experts,
        .scales_bytes = w->scales->t->bytes / (uint64_t)w->experts,
        .code = qn_format_rows(w->k),
        .scale = qn_format_rows(w->k / BLOCK),
    };
    int code =
        qn_weight_add(&op, pack, layer, name, (int)w->experts, w->rows, w->k);

    for (int64_t e = 0; e < w->experts && !code; e++) {
        piece.codes_at = (uint64_t)e * piece.codes_bytes;
        piece.scales_at = (uint64_t)e * piece.scales_bytes;
        code = qn_weight_put(&op, 0, &piece);
    }
    return code;
}

/* A bias in bf16, in fp32. */
static int put_bias(struct qn_pack *pack, const char *layer, const char *name,
                    const char *target, const struct weight *w)
{
    const int64_t shape[] = {w->experts, w->rows};
    struct qn_pack_part part = {
        .source = qn_format_rows(1),
        .target = qn_format_rows(1),
        .rows = 1,
        .columns = w->experts * w->rows,
        .bits = 16,
        .target_bits = 32,
    };
    struct qn_pack_output *output;
    char bias[64];
    int code;

    snprintf(bias, sizeof bias, "%s_bias", name);
    code =
        qn_format_tensor(pack, layer, bias, QN_ST_BF16, 2, shape, &part.from);
    if (code)
        return code;
    part.bytes = part.from->t->bytes;
    output = qn_pack_output(pack, layer, target);
    if (!output)
        return QUERN_ENOMEM;
    output->type = QN_ST_F32;
    output->ndim = 2;
    memcpy(output->shape, shape, sizeof shape);
    output->bytes = 2 * part.bytes;
    output->matrices = 1;
    return qn_pack_part(output, &part);
}

static int put_layer(struct qn_pack *pack, const char *layer)
{
    const struct names *names = names_of(pack);
    struct weight w1, w2;
    int code = read_weight(pack, layer, names->w1, &w1);

    if (!code)
        code = read_weight(pack, layer, names->w2, &w2);
    if (code)
        return code;
    if (w1.rows % 2 || w2.experts != w1.experts || w2.rows != w1.k ||
        w2.k != w1.rows / 2)
        return qn_checkpoint_wrong(
            pack->checkpoint, w2.blocks,
            "[%lld, %lld, %lld, 16] is expected, since '%s' has %lld rows and "
            "k = %lld",
            (long long)w1.experts, (long long)w1.k,
            (long long)w1.rows / 2 / BLOCK, w1.blocks->t->name,
            (long long)w1.rows, (long long)w1.k);
    code = qn_expert_layer(pack, w1.blocks, layer, (int)w1.experts, w1.k, w2.k,
                           "clamped_swiglu");
    if (code)
        return code;
    pack->layers[pack->nlayers - 1].interleave = 1;
    pack->layers[pack->nlayers - 1].bias = 1;
    code = put_weight(pack, layer, "w1", &w1);
    if (!code)
        code = put_bias(pack, layer, names->w1, ".b1", &w1);
    if (!code)
        code = put_weight(pack, layer, "w2", &w2);
    return code ? code : put_bias(pack, layer, names->w2, ".b2", &w2);
}

static int plan(struct qn_pack *pack)
{
    const struct qn_checkpoint *c = pack->checkpoint;
    const char *codes = pack->format->codes;
    int code = QUERN_OK;

    for (int i = 0; i < c->count && !code; i++) {
        const char *name = c->tensors[i].t->name;
        const size_t length = strlen(name), end = strlen(codes);
        char *layer;

        if (length <= end || strcmp(name + length - end, codes))
            continue;
        layer = qn_text_copy(name);
        if (!layer)
            return qn_error_memory();
        layer[length - end] = 0;
        if (qn_expert_wanted(pack, layer))
            code = put_layer(pack, layer);
        free(layer);
    }
    return code;
}

const struct qn_format qn_format_gpt_oss = {
    .name = "gpt-oss",
    .title = "MXFP4 (gpt-oss)",
    .recipe = "w4a16_mxfp4",
    .codes = ".gate_up_proj_blocks",
    .is = is,
    .plan = plan,
};

const struct qn_format qn_format_gpt_oss_original = {
    .name = "gpt-oss-original",
    .title = "MXFP4 (gpt-oss, original)",
    .recipe = "w4a16_mxfp4",
    .codes = ".mlp1_weight.blocks",
    .is = is,
    .plan = plan,
};

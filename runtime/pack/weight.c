/* SPDX-License-Identifier: Apache-2.0 */
/* weight.c: weights as quern's recipes store them: the library's table of
   operands tells their shapes. */
#include "pack/format.h"

#include "base/context.h"
#include "base/error.h"
#include "base/types.h"

#include <stdio.h>
#include <string.h>

static const struct qn_scaling *weights_of(const struct qn_pack *pack,
                                           int *type)
{
    const struct qn_recipe *recipe = qn_context_recipe(pack->ctx, pack->recipe);

    *type = recipe ? recipe->w : QUERN_TYPE_NONE;
    return recipe ? &recipe->scaling[QN_W] : NULL;
}

/* The type of a file's tensor for one of the library's; those without a name
   in files are bytes. */
static int file_type(int type)
{
    switch (type) {
    case QUERN_F32:
        return QN_ST_F32;
    case QUERN_F16:
        return QN_ST_F16;
    case QUERN_BF16:
        return QN_ST_BF16;
    case QUERN_E4M3:
        return QN_ST_F8_E4M3;
    case QUERN_F16_ZERO:
    case QUERN_BF16_ZERO:
        return QN_ST_I32;
    default:
        return QN_ST_U8;
    }
}

/* The type of a scale that may have a zero point after it. */
static int type_of_scale(const struct qn_scaling *s)
{
    return s->type == QUERN_F16_ZERO    ? QUERN_F16
           : s->type == QUERN_BF16_ZERO ? QUERN_BF16
                                        : s->type;
}

static int stores_zeros(const struct qn_scaling *s)
{
    return s->type != type_of_scale(s);
}

/* Values of less than a byte become bytes. */
static int add_output(struct qn_weight *op, const struct quern_operand *row,
                      int *index)
{
    struct qn_pack_output *output;
    char name[32];
    const char *dot = strchr(row->name, '.');
    const int bits = qn_type_bits(row->type);

    snprintf(name, sizeof name, ".%s%s", op->name, dot ? dot : "");
    *index = op->pack->noutputs;
    output = qn_pack_output(op->pack, op->layer, name);
    if (!output)
        return QUERN_ENOMEM;
    output->type = file_type(row->type);
    output->ndim = row->ndim;
    output->matrices = op->experts;
    for (int i = 0; i < row->ndim; i++)
        output->shape[i] = row->shape[i].base;
    output->bytes = (uint64_t)row->bytes.base;
    if (!dot) {
        output->shape[row->ndim - 1] = row->pitch.base * bits / 8;
        op->pitch = row->pitch.base;
    }
    return QUERN_OK;
}

static int read_table(struct qn_weight *op, const struct quern_operand *table,
                      int count)
{
    int code = QUERN_OK;

    op->global = -1;
    for (int i = 0; i < count && !code; i++) {
        const struct quern_operand *row = &table[i];

        if (row->arg == QUERN_ARG_B)
            code = add_output(op, row, &op->codes);
        else if (row->arg == QUERN_ARG_B_SF)
            code = add_output(op, row, &op->scales);
        else if (row->arg == QUERN_ARG_B_GLOBAL)
            code = add_output(op, row, &op->global);
    }
    return code;
}

/* The address of a line and a block among an expert's scales; with zero points
   each is the first of two halves. */
static void lay_out(struct qn_weight *op, const struct qn_scaling *scaling)
{
    const struct qn_pack_output *sf = &op->pack->outputs[op->scales];
    const int each = stores_zeros(scaling) ? 2 : 1;
    const struct qn_pack_axis one = {1, each, 0, NULL};
    const struct qn_pack_axis pitch = {1, each * sf->shape[2], 0, NULL};
    const int columns = scaling->order == QN_ORDER_COLUMNS;

    op->scale.rows = columns ? one : pitch;
    op->scale.columns = columns ? pitch : one;
}

int qn_weight_add(struct qn_weight *op, struct qn_pack *pack, const char *layer,
                  const char *name, int experts, int64_t rows, int64_t k)
{
    struct quern_operand *table;
    int type, count, code;
    const struct qn_scaling *s = weights_of(pack, &type);
    char line[256];

    *op = (struct qn_weight){.pack = pack,
                             .layer = layer,
                             .name = name,
                             .experts = experts,
                             .rows = rows,
                             .k = k,
                             .bits = qn_type_bits(type)};
    snprintf(line, sizeof line, "fprop %.64s g=%d m=128 n=%lld k=%lld",
             pack->recipe, experts, (long long)rows, (long long)k);
    code = quern_describe(pack->ctx, line, &table, &count);
    if (code)
        return code;
    op->scale_bits = qn_type_bits(type_of_scale(s));
    op->block_rows = s->rows;
    op->block_k = s->k;
    code = read_table(op, table, count);
    quern_free(table);
    if (!code)
        lay_out(op, s);
    return code;
}

int qn_weight_fits(const struct qn_pack *pack,
                   const struct qn_checkpoint_tensor *tensor, unsigned types,
                   int scale_type, int64_t block_rows, int64_t block_k)
{
    int type;
    const struct qn_scaling *s = weights_of(pack, &type);

    if (!s)
        return qn_error_set(QUERN_EINVAL,
                            "recipe '%s' is unknown; quern recipes lists all",
                            pack->recipe);
    if (types >> type & 1 && type_of_scale(s) == scale_type &&
        s->span == QN_SPAN_BLOCK && s->rows == block_rows && s->k == block_k &&
        !s->apart && s->order != QN_ORDER_TILES)
        return QUERN_OK;
    return qn_checkpoint_wrong(
        pack->checkpoint, tensor,
        "a scale of type %s is for %lld x %lld values of %s, and recipe %s has "
        "w = %s with a scale of type %s for %d x %d; --recipe names another "
        "one, which may be of your own (docs/recipes.md)",
        qn_type_name(scale_type), (long long)block_rows, (long long)block_k,
        pack->format->title, pack->recipe, qn_type_name(type),
        qn_type_name(s->type), s->rows, s->k);
}

int qn_weight_rebased(const struct qn_pack *pack)
{
    int type;
    const struct qn_scaling *s = weights_of(pack, &type);

    return s && s->as;
}

int qn_weight_zero(const struct qn_pack *pack, unsigned *flip)
{
    int type;
    const struct qn_scaling *s = weights_of(pack, &type);

    *flip = type == QUERN_I4 ? 8 : 0; /* the sign of two's complement */
    return type == QUERN_I4 || !s ? 8 : stores_zeros(s) ? -1 : s->zero;
}

int qn_weight_put(const struct qn_weight *op, int64_t first,
                  const struct qn_format_piece *piece)
{
    struct qn_pack_output *outputs = op->pack->outputs;
    const int64_t lines = op->block_rows;
    const struct qn_pack_part codes = {
        .from = piece->codes,
        .at = piece->codes_at,
        .bytes =
            piece->codes_bytes ? piece->codes_bytes : piece->codes->t->bytes,
        .source = piece->code,
        .target = qn_format_rows(op->pitch),
        .rows = piece->rows,
        .columns = piece->k,
        .target_at = first * op->pitch,
        .bits = op->bits,
        .flip = piece->flip,
    };
    const struct qn_pack_part scales = {
        .from = piece->scales,
        .at = piece->scales_at,
        .bytes =
            piece->scales_bytes ? piece->scales_bytes : piece->scales->t->bytes,
        .source = piece->scale,
        .target = op->scale,
        .rows = (piece->rows + lines - 1) / lines,
        .columns = (piece->k + op->block_k - 1) / op->block_k,
        .target_at = first / lines * op->scale.rows.outer,
        .bits = op->scale_bits,
    };
    const struct qn_pack_part zeros = {
        .from = piece->zeros,
        .bytes = piece->zeros ? piece->zeros->t->bytes : 0,
        .source = piece->zero,
        .target = op->scale,
        .rows = scales.rows,
        .columns = scales.columns,
        .target_at = scales.target_at + 1,
        .bits = 4,
        .target_bits = 16,
        .add = piece->zero_add,
    };
    const struct qn_pack_part global = {
        .from = piece->global,
        .bytes = sizeof(float),
        .source = qn_format_rows(1),
        .target = qn_format_rows(1),
        .rows = 1,
        .columns = 1,
        .bits = 32,
    };
    int code;

    if ((op->global >= 0) != (piece->global != NULL))
        return qn_checkpoint_wrong(
            op->pack->checkpoint, piece->codes,
            "recipe %s has %s second level of scales, and %s has %s",
            op->pack->recipe, op->global >= 0 ? "a" : "no",
            op->pack->format->title, piece->global ? "one" : "none");
    if (first % lines)
        return qn_checkpoint_wrong(
            op->pack->checkpoint, piece->scales,
            "the up projection begins after %lld rows, and %lld rows share a "
            "scale: the two would share one",
            (long long)first, (long long)lines);
    code = qn_pack_part(&outputs[op->codes], &codes);
    if (!code)
        code = qn_pack_part(&outputs[op->scales], &scales);
    if (!code && piece->zeros)
        code = qn_pack_part(&outputs[op->scales], &zeros);
    if (!code && op->global >= 0)
        code = qn_pack_part(&outputs[op->global], &global);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer.c: a grouped MLP with data, ready to run.
*/
#include "oracle/layer.h"

#include <math.h>
#include <string.h>

#include "base/context.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/mlp.h"
#include "problem/scale.h"
#include "problem/sizes.h"
#include "oracle/tolerance.h"

/* ---------------------------------------------------------------- contents */

/* Rows of x, y, dy and dx may have gaps. */
static const int strided[] = {QUERN_ARG_X, QUERN_ARG_Y, QUERN_ARG_DY,
                              QUERN_ARG_DX};

/* Values that a layer has: every result is about 1. */
static int fill_values(const struct qn_layer *l, const struct quern_operand *o,
                       int number, void *to, size_t bytes)
{
    const double inputs = o->arg == QUERN_ARG_W1   ? (double)l->mlp.hidden
                          : o->arg == QUERN_ARG_W2 ? (double)l->mlp.ffn
                          : o->arg >= QUERN_ARG_B1 ? 4 /* biases */
                                                   : 1;

    return qn_call_draw(&l->call, o, to, bytes, 64 * l->seed + (uint64_t)number,
                        (float)(1 / sqrt(inputs)));
}

/* A delayed factor for x, h, dy or dpre. Gradients of steep activations are
   larger than x: a type of many exponents has room for them; one of 4 bits has
   none to spare, and cuts some values. */
static float factor_of_rows(int type)
{
    const float most = type == QUERN_E5M2        ? 1024
                       : qn_type_bits(type) == 4 ? 4
                                                 : 8;

    return qn_tolerance_factor(type, most);
}

/* One for weights that fill_values draws. */
static float factor_of_weights(int type, int64_t inputs)
{
    return qn_tolerance_factor(type, (float)(4 / sqrt((double)inputs)));
}

static float factor_of(const struct qn_recipe *recipe, const struct qn_mlp *mlp,
                       size_t tensor)
{
    switch (tensor) {
    case QUERN_MLP_X:
    case QUERN_MLP_H:
        return factor_of_rows(recipe->x);
    case QUERN_MLP_W1:
        return factor_of_weights(recipe->w, mlp->hidden);
    case QUERN_MLP_W2:
        return factor_of_weights(recipe->w, mlp->ffn);
    default:
        return factor_of_rows(recipe->dy);
    }
}

void qn_layer_floats(const struct qn_recipe *recipe, const struct qn_mlp *mlp,
                     int arg, uint64_t seed, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float factor = factor_of(recipe, mlp, i / 2);

        to[i] = arg == QUERN_ARG_HISTORY ? 0
                : arg == QUERN_ARG_SCALE ? (i % 2 ? 1 / factor : factor)
                : i % 7 == 3 /* some probabilities are 0 */
                    ? 0
                    : (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
    }
}

/* Operands that runs read; a number makes the values of each differ. */
static int fill(void *layer, const struct quern_operand *o, void *to,
                size_t bytes)
{
    static const int numbers[QUERN_ARGS_COUNT] = {
        [QUERN_ARG_X] = 1,    [QUERN_ARG_DY] = 2,   [QUERN_ARG_W1] = 3,
        [QUERN_ARG_W2] = 4,   [QUERN_ARG_B1] = 8,   [QUERN_ARG_B2] = 9,
        [QUERN_ARG_DW1] = 12, [QUERN_ARG_DW2] = 13, [QUERN_ARG_DB1] = 14,
        [QUERN_ARG_DB2] = 15};
    const struct qn_layer *l = layer;

    if (!o->read)
        return QN_CALL_POISON;
    if (numbers[o->arg])
        return fill_values(l, o, numbers[o->arg] - 1, to, bytes);
    switch (o->arg) {
    case QUERN_ARG_PROB:
    case QUERN_ARG_SCALE:
    case QUERN_ARG_HISTORY:
        qn_layer_floats(l->recipe, &l->mlp, o->arg, 64 * l->seed, to,
                        bytes / sizeof(float));
        return QUERN_OK;
    case QUERN_ARG_RANDOM:
        for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
            ((uint64_t *)to)[i] = i % 2 ? 0 : 64 * l->seed + i / 2;
        return QUERN_OK;
    default:
        return QN_CALL_POISON;
    }
}

/* ------------------------------------------------------------------- begin */

static int draw_sizes(struct qn_layer *l, const struct qn_options *opt,
                      const int64_t *sizes)
{
    const struct qn_mlp *mlp = &l->mlp;
    char why[512];

    if (sizes)
        memcpy(l->sizes, sizes, (size_t)mlp->groups * sizeof *sizes);
    else if (qn_sizes_draw(mlp->split, mlp->groups, mlp->m, opt->seed, l->sizes,
                           why, sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    for (int i = 0; i < mlp->groups; i++) {
        l->starts[i] = l->rows;
        l->rows += l->sizes[i];
    }
    return QN_EXIT_OK;
}

int qn_layer_begin(struct qn_layer *l, const struct qn_options *opt,
                   struct quern_context *ctx, const struct qn_mlp *mlp,
                   int backend, const int64_t *sizes, int64_t gap)
{
    const struct quern_plan_options options = qn_call_options(opt, backend);
    const struct qn_line line = {.kind = QN_LINE_MLP, .of.mlp = *mlp};
    const struct qn_call_data data = {.sizes = l->sizes,
                                      .groups = mlp->groups,
                                      .on_host = mlp->sizes != 0,
                                      .pointers = 1,
                                      .fill = fill,
                                      .user = l};
    int code, status;

    *l = (struct qn_layer){
        .mlp = *mlp, .seed = opt->seed, .pitch = mlp->hidden + gap};
    l->recipe = qn_context_recipe(ctx, mlp->recipe);
    status = draw_sizes(l, opt, sizes);
    if (status)
        return status;
    code = qn_call_plan(&l->call, ctx, &line, &options);
    l->call.alike = opt->alike || !qn_scale_blocks(l->recipe);
    for (int i = 0; i < 4 && gap; i++)
        l->call.args.of[strided[i]].stride = l->pitch;
    if (!code)
        code = qn_call_make(&l->call, &data);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

/* Each product is made forward, and for both gradients if there are any. */
double qn_layer_flops(const struct qn_mlp *mlp, int64_t rows)
{
    const double p = (double)qn_mlp_operands(mlp);
    const double sides = (double)mlp->hidden * (p + (double)mlp->ffn);

    return (mlp->forward_only ? 1 : 3) * 2 * (double)rows * sides;
}

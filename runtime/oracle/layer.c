/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer.c: a grouped MLP with data, ready to run.
*/
#include "oracle/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mlp/mlp_plan.h"
#include "base/context.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/mlp.h"
#include "problem/sizes.h"
#include "oracle/operand.h"
#include "oracle/timing.h"
#include "oracle/tolerance.h"

/* ------------------------------------------------------------------ buffers */

/* The operand that a part is; -1: sizes, which are an array of their own. */
static int arg_of(int part)
{
    static const int args[QN_LAYER_PARTS] = {
        [QN_LAYER_X] = QUERN_ARG_X,
        [QN_LAYER_DY] = QUERN_ARG_DY,
        [QN_LAYER_W1] = QUERN_ARG_W1,
        [QN_LAYER_W2] = QUERN_ARG_W2,
        [QN_LAYER_SIZES] = -1,
        [QN_LAYER_PROBABILITY] = QUERN_ARG_PROB,
        [QN_LAYER_RANDOM] = QUERN_ARG_RANDOM,
        [QN_LAYER_B1] = QUERN_ARG_B1,
        [QN_LAYER_B2] = QUERN_ARG_B2,
        [QN_LAYER_SCALE] = QUERN_ARG_SCALE,
        [QN_LAYER_HISTORY] = QUERN_ARG_HISTORY,
        [QN_LAYER_DW1] = QUERN_ARG_DW1,
        [QN_LAYER_DW2] = QUERN_ARG_DW2,
        [QN_LAYER_DB1] = QUERN_ARG_DB1,
        [QN_LAYER_DB2] = QUERN_ARG_DB2,
        [QN_LAYER_Y] = QUERN_ARG_Y,
        [QN_LAYER_DX] = QUERN_ARG_DX,
        [QN_LAYER_DPROB] = QUERN_ARG_DPROB,
        [QN_LAYER_SAVED] = QUERN_ARG_SAVED,
        [QN_LAYER_PENDING] = QUERN_ARG_PENDING,
        [QN_LAYER_WORKSPACE] = QUERN_ARG_WORKSPACE,
    };

    return part >= QN_LAYER_COPIES && part < QN_LAYER_SAVED
               ? part - QN_LAYER_COPIES + QUERN_ARG_W1_ROWWISE
               : args[part];
}

/* A tensor of the arguments; NULL: the part is another array. */
static struct qn_tensor *tensor_of(struct qn_mlp_args *a, int part)
{
    const struct qn_slot *slot = qn_api_slot(arg_of(part), QN_LINE_MLP);

    return slot && slot->form == QN_SLOT_TENSOR
               ? (void *)((char *)a + slot->at[QN_LINE_MLP])
               : NULL;
}

/* Rows of x, y, dy and dx may have gaps. */
static int is_strided(int part)
{
    return part == QN_LAYER_X || part == QN_LAYER_DY || part == QN_LAYER_Y ||
           part == QN_LAYER_DX;
}

static size_t strided_bytes(const struct qn_layer *l)
{
    const int64_t m = l->mlp.m;
    const int64_t elements = m ? (m - 1) * l->pitch + l->mlp.hidden : 0;

    return (size_t)(elements * qn_type_bits(l->mlp.type) / 8);
}

/* The bytes of each part, by the operand table. */
static int find_bytes(struct qn_layer *l)
{
    const struct qn_line line = {.kind = QN_LINE_MLP, .of.mlp = l->mlp};
    size_t bytes[QUERN_ARGS_COUNT];
    int code = qn_operand_bytes(l->ctx, &line, l->mlp.m, bytes);

    for (int part = 0; part < QN_LAYER_PARTS; part++) {
        const size_t packed = part == QN_LAYER_SIZES ? 0 : bytes[arg_of(part)];

        l->bytes[part] = packed && is_strided(part) ? strided_bytes(l) : packed;
    }
    l->bytes[QN_LAYER_SIZES] = (size_t)l->mlp.groups * sizeof *l->sizes;
    l->bytes[QN_LAYER_SAVED] = l->need.saved_bytes; /* there upper bounds */
    l->bytes[QN_LAYER_PENDING] = l->need.pending_bytes;
    return code;
}

/* Set a part before a run; some stay poison. */
static int has_contents(const struct qn_layer *l, int part)
{
    if (part >= QN_LAYER_DW1 && part <= QN_LAYER_DB2)
        return l->mlp.dw_beta == QUERN_BETA_ONE;
    return part < QN_LAYER_Y || part == QN_LAYER_WORKSPACE;
}

/* Values that a layer has: every result is about 1. */
static int fill_tensor(const struct qn_layer *l, int part, uint64_t seed)
{
    const struct qn_mlp *mlp = &l->mlp;
    struct qn_mlp_args need = l->need.args;
    const struct qn_tensor *t = tensor_of(&need, part);
    const double inputs = part == QN_LAYER_W1   ? (double)mlp->hidden
                          : part == QN_LAYER_W2 ? (double)mlp->ffn
                                                : 1;

    return qn_random_fill(l->host[part], t->type,
                          t->bytes * 8 / (size_t)qn_type_bits(t->type),
                          seed + (uint64_t)part, (float)(1 / sqrt(inputs)))
               ? QUERN_EINVAL
               : QUERN_OK;
}

static int is_bias(int part)
{
    return part == QN_LAYER_B1 || part == QN_LAYER_B2 || part == QN_LAYER_DB1 ||
           part == QN_LAYER_DB2;
}

/* A factor for tensors whose largest values had been 8. */
static float factor_of(const struct qn_recipe *recipe)
{
    return fminf(qn_tolerance_factor(recipe->x, 8),
                 fminf(qn_tolerance_factor(recipe->w, 8),
                       qn_tolerance_factor(recipe->dy, 8)));
}

static int fill_part(struct qn_layer *l, int part, uint64_t seed)
{
    const size_t bytes = l->bytes[part];
    struct qn_mlp_args need = l->need.args;
    float *floats = l->host[part];

    if (tensor_of(&need, part))
        return fill_tensor(l, part, seed);
    if (is_bias(part))
        return qn_random_fill(floats, QUERN_F32, bytes / sizeof(float),
                              seed + (uint64_t)part, 0.5f)
                   ? QUERN_EINVAL
                   : QUERN_OK;
    memset(floats, 0, bytes);
    if (part == QN_LAYER_WORKSPACE)
        qn_memory_begin(floats, bytes);
    if (part == QN_LAYER_SIZES)
        memcpy(floats, l->sizes, bytes);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        if (part == QN_LAYER_PROBABILITY) /* some are 0 */
            floats[i] = i % 7 == 3
                            ? 0
                            : (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
        else if (part == QN_LAYER_SCALE)
            floats[i] = i % 2 ? 1 / factor_of(l->recipe) : factor_of(l->recipe);
    for (size_t i = 0; part == QN_LAYER_RANDOM && i < QUERN_MLP_TENSORS; i++)
        ((uint64_t *)(void *)floats)[2 * i] = seed + i;
    return QUERN_OK;
}

/* Rows that are packed on the host. */
static int write_rows(struct qn_layer *l, int part)
{
    const size_t element = (size_t)qn_type_bits(l->mlp.type) / 8;
    const size_t bytes = (size_t)l->mlp.hidden * element;
    const size_t pitch = (size_t)l->pitch * element;
    const char *from = l->host[part];
    int code = QUERN_OK;

    if (pitch == bytes)
        return qn_memory_write(&l->memory[part], 0, from,
                               l->memory[part].bytes);
    for (size_t row = 0; row < (size_t)l->mlp.m && !code; row++)
        code = qn_memory_write(&l->memory[part], row * pitch,
                               from + row * bytes, bytes);
    return code;
}

static int make_part(struct qn_layer *l, int part, uint64_t seed)
{
    const size_t bytes = l->bytes[part];
    int code = qn_memory_new(&l->memory[part], l->gpu, bytes);

    if (code || !bytes || !has_contents(l, part))
        return code;
    l->host[part] = malloc(bytes);
    if (!l->host[part])
        return QUERN_ENOMEM;
    code = fill_part(l, part, 64 * seed);
    if (code)
        return code;
    return is_strided(part)
               ? write_rows(l, part)
               : qn_memory_write(&l->memory[part], 0, l->host[part], bytes);
}

int qn_layer_reset(struct qn_layer *l)
{
    int code = QUERN_OK;

    for (int part = QN_LAYER_SCALE; part < QN_LAYER_PARTS && !code; part++)
        code = l->host[part]
                   ? qn_memory_write(&l->memory[part], 0, l->host[part],
                                     l->memory[part].bytes)
                   : qn_memory_clear(&l->memory[part], QN_MEMORY_POISON);
    return code;
}

static void *address(const struct qn_layer *l, int part)
{
    return l->memory[part].bytes ? l->memory[part].data : NULL;
}

/* The address of a part, where the arguments have it. */
static void point_part(struct qn_layer *l, int part)
{
    struct qn_tensor *t = tensor_of(&l->args, part);

    qn_operand_put(QN_LINE_MLP, arg_of(part), &l->args, address(l, part));
    if (is_strided(part) && l->pitch > l->mlp.hidden) {
        t->stride = l->pitch;
        t->bytes = l->memory[part].bytes;
    }
}

/* The arguments of a run: those of the description, and the addresses. */
static void point(struct qn_layer *l)
{
    struct qn_mlp_args *args = &l->args;

    *args = l->need.args;
    for (int part = 0; part < QN_LAYER_PARTS; part++)
        if (part != QN_LAYER_SIZES)
            point_part(l, part);
    if (l->mlp.sizes)
        args->host_sizes = l->sizes;
    else
        args->first_dims = address(l, QN_LAYER_SIZES);
    args->sizes_type = QUERN_I64;
}

/* Weights or their gradients by the addresses of the matrices, where the line
   says so. */
static int point_matrices(struct qn_layer *l, int part)
{
    const int word = part >= QN_LAYER_DW1 ? QUERN_MLP_DW : QUERN_MLP_W;
    const size_t groups = (size_t)l->mlp.groups;
    const size_t bytes = l->memory[part].bytes / groups;
    struct qn_tensor *t = tensor_of(&l->args, part);
    void *matrices[QUERN_MAX_GROUPS];
    int code;

    if (!(l->mlp.pointers & word))
        return QUERN_OK;
    for (size_t g = 0; g < groups; g++)
        matrices[g] = l->memory[part].data + g * bytes;
    code = qn_memory_new(&l->pointers[part], l->gpu, groups * sizeof *matrices);
    if (!code)
        code = qn_memory_write(&l->pointers[part], 0, matrices,
                               groups * sizeof *matrices);
    t->data = NULL;
    t->pointers = (void *const *)(void *)l->pointers[part].data;
    return code;
}

static int point_all(struct qn_layer *l)
{
    static const int parts[] = {QN_LAYER_W1, QN_LAYER_W2, QN_LAYER_DW1,
                                QN_LAYER_DW2};
    int code = QUERN_OK;

    point(l);
    for (int i = 0; i < 4 && !code; i++)
        code = point_matrices(l, parts[i]);
    return code;
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

/* Plan, and open the GPU if the plan is for one. */
static int plan(struct qn_layer *l, const struct qn_options *opt, int backend)
{
    const struct qn_plan_options options = {
        .backend = backend, .kernel = opt->kernel, .streams = opt->streams};
    struct quern_plan_info info;
    int code = qn_mlp_needs(l->ctx, &l->mlp, &l->need);

    if (!code)
        code = qn_mlp_plan(l->ctx, &l->mlp, &options, &l->plan);
    if (code)
        return code;
    qn_plan_info(l->plan->launches[QN_MLP_PRE].product, &info);
    if (info.backend == QUERN_BACKEND_HOST)
        return QUERN_OK;
    return qn_gpu_open(l->ctx, &l->gpu);
}

int qn_layer_begin(struct qn_layer *l, const struct qn_options *opt,
                   struct quern_context *ctx, const struct qn_mlp *mlp,
                   int backend, const int64_t *sizes, int64_t gap)
{
    int code, status;

    *l = (struct qn_layer){.ctx = ctx, .mlp = *mlp, .pitch = mlp->hidden + gap};
    l->recipe = qn_context_recipe(ctx, mlp->recipe);
    status = draw_sizes(l, opt, sizes);
    if (status)
        return status;
    code = plan(l, opt, backend);
    if (!code)
        code = find_bytes(l);
    for (int part = 0; part < QN_LAYER_PARTS && !code; part++)
        code = make_part(l, part, opt->seed);
    if (!code)
        code = point_all(l);
    return code ? qn_message_code(opt, code, qn_errmsg(ctx)) : QN_EXIT_OK;
}

void qn_layer_free(struct qn_layer *l)
{
    for (int part = 0; part < QN_LAYER_PARTS; part++) {
        free(l->host[part]);
        qn_memory_free(&l->memory[part]);
        qn_memory_free(&l->pointers[part]);
    }
    qn_gpu_close(l->gpu);
    qn_mlp_plan_free(l->plan);
    memset(l, 0, sizeof *l);
}

/* --------------------------------------------------------------------- run */

static int queue(void *layer)
{
    struct qn_layer *l = layer;
    int code = qn_mlp_forward(l->plan, &l->args, NULL);

    return code || l->mlp.forward_only
               ? code
               : qn_mlp_backward(l->plan, &l->args, NULL);
}

int qn_layer_run(struct qn_layer *l)
{
    int code = qn_mlp_weights(l->plan, &l->args, NULL);

    if (!code)
        code = queue(l);
    return code ? code : qn_mlp_run_check(l->plan, &l->args, NULL);
}

int qn_layer_measure(struct qn_layer *l, int runs, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, l, l->gpu};
    int code = qn_mlp_weights(l->plan, &l->args, NULL);

    if (!code)
        code = qn_timing_measure(&timed, runs, time);
    return code ? code : qn_mlp_run_check(l->plan, &l->args, NULL);
}

int qn_layer_once(struct qn_layer *l, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, l, l->gpu};
    int code = qn_mlp_weights(l->plan, &l->args, NULL);

    memset(time, 0, sizeof *time);
    if (!code)
        code = qn_timing_runs(&timed, &time->seconds, 1, &time->load);
    time->least = time->seconds;
    time->runs = 1;
    return code ? code : qn_mlp_run_check(l->plan, &l->args, NULL);
}

/* Each product is made forward, and for both gradients if there are any. */
double qn_layer_flops(const struct qn_layer *l)
{
    const double p = (double)l->need.args.w1.shape[1];
    const double sides = (double)l->mlp.hidden * (p + (double)l->mlp.ffn);

    return (l->mlp.forward_only ? 1 : 3) * 2 * (double)l->rows * sides;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cast.c: a quantization with data, ready to run. */
#include "oracle/cast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/quantize.h"
#include "problem/sizes.h"
#include "oracle/operand.h"
#include "oracle/timing.h"
#include "oracle/tolerance.h"

/* ------------------------------------------------------------------ buffers */

/* The operand that a part is. Sizes of any type are int64 here. */
static const int args_of[QN_CAST_PARTS] = {
    [QN_CAST_IN] = QUERN_ARG_INPUT,
    [QN_CAST_SAVED] = QUERN_ARG_PRE,
    [QN_CAST_BIAS] = QUERN_ARG_BIAS,
    [QN_CAST_PROBABILITY] = QUERN_ARG_PROB,
    [QN_CAST_RANDOM] = QUERN_ARG_RANDOM,
    [QN_CAST_SIZES] = QUERN_ARG_LENGTHS,
    [QN_CAST_SCALE] = QUERN_ARG_SCALE,
    [QN_CAST_HISTORY] = QUERN_ARG_HISTORY,
    [QN_CAST_ROW] = QUERN_ARG_ROWWISE,
    [QN_CAST_ROW_SF] = QUERN_ARG_ROWWISE_SF,
    [QN_CAST_ROW_GLOBAL] = QUERN_ARG_ROWWISE_GLOBAL,
    [QN_CAST_COLUMN] = QUERN_ARG_COLUMNWISE,
    [QN_CAST_COLUMN_SF] = QUERN_ARG_COLUMNWISE_SF,
    [QN_CAST_COLUMN_GLOBAL] = QUERN_ARG_COLUMNWISE_GLOBAL,
    [QN_CAST_OUT] = QUERN_ARG_OUTPUT,
    [QN_CAST_DBIAS] = QUERN_ARG_DBIAS,
    [QN_CAST_DPROB] = QUERN_ARG_DPROB,
};

/* The bytes of each part, by the operand table. */
static int find_bytes(struct qn_cast *c)
{
    const struct qn_line line = {.kind = QN_LINE_CAST, .of.cast = c->q};
    size_t bytes[QUERN_ARGS_COUNT];
    int code = qn_operand_bytes(c->ctx, &line, c->q.m, bytes);

    for (int part = 0; part < QN_CAST_PARTS; part++)
        c->bytes[part] = bytes[args_of[part]];
    if (c->bytes[QN_CAST_SIZES])
        c->bytes[QN_CAST_SIZES] = (size_t)c->q.groups * sizeof *c->sizes;
    return code;
}

/* Parameters of delayed scaling, for values of deviation 1. */
static float factor_of(const struct qn_cast *c)
{
    const struct qn_recipe *recipe = qn_context_recipe(c->ctx, c->q.recipe);

    return qn_tolerance_factor(qn_quantize_element(&c->q, recipe), 4);
}

/* Set a part before a run: 0, or a code; NULL stays poison. */
static int fill_numbers(struct qn_cast *c, int part, uint64_t seed)
{
    float *floats = c->host[part];
    size_t count = c->bytes[part] / sizeof(float);

    if (part == QN_CAST_IN || part == QN_CAST_SAVED || part == QN_CAST_OUT)
        return qn_random_fill(c->host[part], c->q.type,
                              c->bytes[part] * 8 /
                                  (size_t)qn_type_bits(c->q.type),
                              seed + (uint64_t)part, 1)
                   ? QUERN_EINVAL
                   : QUERN_OK;
    if (part == QN_CAST_RANDOM)
        memcpy(c->host[part], (uint64_t[]){seed, 0}, 2 * sizeof(uint64_t));
    else if (part == QN_CAST_SIZES)
        memcpy(c->host[part], c->sizes, c->bytes[part]);
    else
        for (size_t i = 0; i < count; i++)
            floats[i] =
                part == QN_CAST_HISTORY ? (i ? 0 : 3)
                : part == QN_CAST_SCALE
                    ? (i ? 1 / factor_of(c) : factor_of(c))
                    : 0.5f + (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
    return QUERN_OK;
}

static int is_added_to(const struct qn_cast *c, int part)
{
    return (part == QN_CAST_OUT && c->q.work == QUERN_BIAS) ||
           (part == QN_CAST_DBIAS && c->q.dbias == QUERN_DBIAS_ADD) ||
           (part == QN_CAST_DPROB && !c->q.activation);
}

/* One buffer, with its contents if a run reads it. */
static int make_part(struct qn_cast *c, int part, uint64_t seed)
{
    size_t bytes = c->bytes[part];
    int code = qn_memory_new(&c->memory[part], c->gpu, bytes);

    if (code || !bytes || (part >= QN_CAST_ROW && !is_added_to(c, part)))
        return code;
    c->host[part] = malloc(bytes);
    if (!c->host[part])
        return QUERN_ENOMEM;
    code = fill_numbers(c, part, 8 * seed);
    return code ? code
                : qn_memory_write(&c->memory[part], 0, c->host[part], bytes);
}

static void *address(struct qn_cast *c, int part)
{
    return c->memory[part].bytes ? c->memory[part].data : NULL;
}

/* The arguments of a run: those of the description, and the addresses. */
static void point(struct qn_cast *c)
{
    c->args = c->need.args;
    for (int part = 0; part < QN_CAST_PARTS; part++)
        qn_operand_put(QN_LINE_CAST, args_of[part], &c->args, address(c, part));
    if (c->q.sizes)
        c->args.host_sizes = c->sizes;
    else
        c->args.first_dims = address(c, QN_CAST_SIZES);
    c->args.sizes_type = QUERN_I64;
    c->args.workspace = c->workspace.data;
}

/* All buffers, and the workspace. */
static int make_parts(struct qn_cast *c, uint64_t seed)
{
    int code = find_bytes(c);

    if (!code)
        code = qn_memory_new(&c->workspace, c->gpu, c->need.workspace_bytes);
    if (!code)
        code = qn_memory_workspace(&c->workspace);
    for (int part = 0; part < QN_CAST_PARTS && !code; part++)
        code = make_part(c, part, seed);
    if (!code)
        point(c);
    return code;
}

/* ------------------------------------------------------------------- begin */

/* With --routes those of the file, whose sum becomes m. */
static int draw_sizes(struct qn_cast *c, const struct qn_options *opt)
{
    struct qn_quantization *q = &c->q;
    int no_tokens = q->work == QUERN_RESCALE || q->of == QN_W;
    char why[512];

    if (opt->routes && no_tokens)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--routes: tokens are the rows of x and dy");
    if (q->work == QUERN_RESCALE)
        return QN_EXIT_OK;
    if (no_tokens)
        for (int i = 0; i < q->groups; i++)
            c->sizes[i] = q->m;
    else if (opt->routes ? qn_sizes_routes(opt->routes, q->groups, c->sizes,
                                           &q->m, why, sizeof why)
                         : qn_sizes_draw(q->split, q->groups, q->m, opt->seed,
                                         c->sizes, why, sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    for (int i = 0; i < q->groups; i++)
        c->rows += c->sizes[i];
    return QN_EXIT_OK;
}

/* Plan, and open the GPU if the plan is for one. */
static int plan(struct qn_cast *c, const struct qn_options *opt, int backend)
{
    const struct qn_plan_options options = {
        .backend = backend, .kernel = opt->kernel, .streams = opt->streams};
    int code = qn_quantize_needs(c->ctx, &c->q, &c->need);

    if (!code)
        code = qn_quantize_plan(c->ctx, &c->q, &options, &c->plan);
    if (code)
        return code;
    qn_quantize_plan_info(c->plan, &c->info);
    if (c->info.backend == QUERN_BACKEND_HOST)
        return QUERN_OK;
    return qn_gpu_open(c->ctx, &c->gpu);
}

/* The input comes from a quantization of the same tensor. */
static int make_copies(struct qn_cast *c, const struct qn_options *opt)
{
    static const int parts[] = {QN_CAST_ROW,        QN_CAST_ROW_SF,
                                QN_CAST_ROW_GLOBAL, QN_CAST_COLUMN,
                                QN_CAST_COLUMN_SF,  QN_CAST_COLUMN_GLOBAL};
    struct qn_quantization q = c->q;
    struct qn_cast first = {0};
    int status, code = QUERN_OK;

    q.work = QUERN_QUANTIZE;
    q.copies = c->q.work == QUERN_TRANSPOSE ? (int)QUERN_ROWWISE : c->q.copies;
    status = qn_cast_begin_host(&first, opt, c->ctx, &q);
    if (!status)
        code = qn_cast_run(&first);
    for (int i = 0; i < 6 && !status && !code; i++) {
        size_t bytes = first.memory[parts[i]].bytes;

        if (!bytes)
            continue;
        c->host[parts[i]] = malloc(bytes);
        code = c->host[parts[i]] ? qn_memory_read(&first.memory[parts[i]], 0,
                                                  c->host[parts[i]], bytes)
                                 : QUERN_ENOMEM;
        if (!code)
            code = qn_memory_write(&c->memory[parts[i]], 0, c->host[parts[i]],
                                   bytes);
    }
    qn_cast_free(&first);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(c->ctx));
    return status;
}

int qn_cast_begin(struct qn_cast *c, const struct qn_options *opt,
                  struct quern_context *ctx, const struct qn_quantization *q,
                  int backend)
{
    int code, status;

    *c = (struct qn_cast){.ctx = ctx, .q = *q};
    status = draw_sizes(c, opt);
    if (status)
        return status;
    code = plan(c, opt, backend);
    if (!code)
        code = make_parts(c, opt->seed);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(ctx));
    if (q->work == QUERN_TRANSPOSE || q->work == QUERN_DEQUANTIZE)
        return make_copies(c, opt);
    return QN_EXIT_OK;
}

int qn_cast_begin_host(struct qn_cast *c, const struct qn_options *opt,
                       struct quern_context *ctx,
                       const struct qn_quantization *q)
{
    struct qn_options plain = *opt;

    plain.kernel = NULL;
    plain.streams = 0;
    return qn_cast_begin(c, &plain, ctx, q, QUERN_BACKEND_HOST);
}

void qn_cast_free(struct qn_cast *c)
{
    for (int part = 0; part < QN_CAST_PARTS; part++) {
        free(c->host[part]);
        qn_memory_free(&c->memory[part]);
    }
    qn_memory_free(&c->workspace);
    qn_gpu_close(c->gpu);
    qn_quantize_plan_free(c->plan);
    memset(c, 0, sizeof *c);
}

/* --------------------------------------------------------------------- run */

int qn_cast_run(struct qn_cast *c)
{
    int code = qn_quantize_run(c->plan, &c->args, NULL);

    return code ? code : qn_quantize_run_check(c->plan, &c->args, NULL);
}

static int queue(void *cast)
{
    struct qn_cast *c = cast;

    return qn_quantize_run(c->plan, &c->args, NULL);
}

int qn_cast_measure(struct qn_cast *c, int runs, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, c, c->gpu};
    int code = qn_timing_measure(&timed, runs, time);

    return code ? code : qn_quantize_run_check(c->plan, &c->args, NULL);
}

/* Rows in groups; all scales. */
double qn_cast_bytes(const struct qn_cast *c)
{
    const struct qn_quantization *q = &c->q;
    double all = q->of == QN_W ? (double)c->rows : (double)q->m, bytes = 0;
    double share = all > 0 ? (double)c->rows / all : 0;

    for (int part = 0; part < QN_CAST_PARTS; part++)
        if (part <= QN_CAST_PROBABILITY || part >= QN_CAST_ROW)
            bytes +=
                (double)c->bytes[part] * (part == QN_CAST_DBIAS ? 1 : share);
    /* the columnwise tensor's bound is more than the bytes written */
    if (q->of != QN_W && c->need.args.column.bytes) {
        double bound = (double)c->need.args.column.shape[1], used = 0;

        for (int i = 0; i < q->groups; i++)
            used += (double)((c->sizes[i] + 127) / 128 * 128);
        bytes += (double)c->need.args.column.bytes * (used / bound - share);
    }
    return bytes;
}

/* ----------------------------------------------------------------- compare */

static const char *const part_names[QN_CAST_PARTS] = {
    "in",        "saved",         "bias", "probability", "random",     "sizes",
    "scale",     "history",       "row",  "row.sf",      "row.global", "column",
    "column.sf", "column.global", "out",  "dbias",       "dprob"};

/* A NaN that a sum makes has other bits on a GPU than on the host: as one. */
static void unify_nans(unsigned char *sums, size_t bytes)
{
    for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
        float value;

        memcpy(&value, sums + i, sizeof value);
        if (value != value)
            memset(sums + i, 0xff, sizeof value);
    }
}

/* One part; the first byte that differs is named. */
static int compare_part(const struct qn_cast *a, const struct qn_cast *b,
                        int part, double *differ, char *where, size_t size)
{
    size_t bytes = a->memory[part].bytes;
    unsigned char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    int code =
        x && y ? qn_memory_read(&a->memory[part], 0, x, bytes) : QUERN_ENOMEM;

    if (!code)
        code = qn_memory_read(&b->memory[part], 0, y, bytes);
    if (!code && part >= QN_CAST_DBIAS) {
        unify_nans(x, bytes);
        unify_nans(y, bytes);
    }
    for (size_t i = 0; i < bytes && !code; i++)
        if (x[i] != y[i] && (*differ)++ == 0)
            snprintf(where, size, ", the first %s[%zu]: %#x and %#x",
                     part_names[part], i, x[i], y[i]);
    free(x);
    free(y);
    return code;
}

int qn_cast_compare(const struct qn_cast *a, const struct qn_cast *b,
                    double *bytes, char *where, size_t size)
{
    int code = QUERN_OK;

    *bytes = 0;
    where[0] = 0;
    for (int part = 0; part < QN_CAST_PARTS && !code; part++)
        code = compare_part(a, b, part, bytes, where, size);
    return code;
}

int qn_cast_guards(const struct qn_cast *c, int *intact)
{
    int code = qn_memory_guards(&c->workspace, intact);

    for (int part = 0; part < QN_CAST_PARTS && !code; part++) {
        int fine = 1;

        if (c->memory[part].base)
            code = qn_memory_guards(&c->memory[part], &fine);
        *intact &= fine;
    }
    return code;
}

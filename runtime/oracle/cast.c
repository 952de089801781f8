/* SPDX-License-Identifier: Apache-2.0 */
/* cast.c: a quantization with data, ready to run. */
#include "oracle/cast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/random.h"
#include "problem/quantize.h"
#include "problem/scale.h"
#include "problem/sizes.h"
#include "oracle/tolerance.h"

/* ---------------------------------------------------------------- contents */

/* Parameters of delayed scaling, for values of deviation 1. */
static float factor_of(const struct qn_cast *c)
{
    const struct qn_recipe *recipe =
        qn_context_recipe(c->call.ctx, c->q.recipe);

    return qn_tolerance_factor(qn_quantize_element(&c->q, recipe), 4);
}

static int fill_values(const struct qn_cast *c, const struct quern_operand *o,
                       void *to, size_t bytes)
{
    const uint64_t number = o->arg == QUERN_ARG_INPUT ? 0
                            : o->arg == QUERN_ARG_PRE ? 1
                                                      : 14;

    return qn_call_draw(&c->call, o, to, bytes, 8 * c->seed + number, 1);
}

static void fill_floats(const struct qn_cast *c, int arg, float *to,
                        size_t count)
{
    uint64_t seed = 8 * c->seed;

    for (size_t i = 0; i < count; i++)
        to[i] = arg == QUERN_ARG_HISTORY ? (i ? 0 : 3)
                : arg == QUERN_ARG_SCALE
                    ? (i ? 1 / factor_of(c) : factor_of(c))
                    : 0.5f + (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
}

/* Quantized tensors that are read come from a quantization. */
static int fill(void *cast, const struct quern_operand *o, void *to,
                size_t bytes)
{
    const struct qn_cast *c = cast;

    if (!o->read)
        return QN_CALL_POISON;
    switch (o->arg) {
    case QUERN_ARG_INPUT:
    case QUERN_ARG_PRE:
    case QUERN_ARG_OUTPUT:
        return fill_values(c, o, to, bytes);
    case QUERN_ARG_RANDOM:
        memcpy(to, (uint64_t[]){8 * c->seed, 0}, 2 * sizeof(uint64_t));
        return QUERN_OK;
    case QUERN_ARG_SCALE:
    case QUERN_ARG_HISTORY:
    case QUERN_ARG_BIAS:
    case QUERN_ARG_PROB:
    case QUERN_ARG_DBIAS:
    case QUERN_ARG_DPROB:
        fill_floats(c, o->arg, to, bytes / sizeof(float));
        return QUERN_OK;
    default:
        return QN_CALL_POISON;
    }
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

/* An operand's contents are those that another call made. */
static int take(struct qn_call *c, int arg, const struct qn_call *from)
{
    const size_t bytes = from->memory[arg].bytes;
    int code;

    if (!c->memory[arg].base)
        return QUERN_OK;
    c->host[arg] = malloc(bytes + 1);
    code = c->host[arg]
               ? qn_memory_read(&from->memory[arg], 0, c->host[arg], bytes)
               : qn_error_memory();
    return code ? code : qn_call_put(c, arg);
}

/* The input comes from a quantization of the same tensor. */
static int make_copies(struct qn_cast *c, const struct qn_options *opt)
{
    struct qn_quantization q = c->q;
    struct qn_cast first = {.rows = 0};
    const int last = c->q.work == QUERN_TRANSPOSE ? QUERN_ARG_ROWWISE_GLOBAL
                                                  : QUERN_ARG_COLUMNWISE_GLOBAL;
    int status, code = QUERN_OK;

    q.work = QUERN_QUANTIZE;
    q.copies = c->q.work == QUERN_TRANSPOSE ? (int)QUERN_ROWWISE : c->q.copies;
    status = qn_cast_begin_host(&first, opt, c->call.ctx, &q);
    if (!status)
        code = qn_call_run(&first.call);
    for (int arg = QUERN_ARG_ROWWISE; arg <= last && !status && !code; arg++)
        code = take(&c->call, arg, &first.call);
    qn_call_free(&first.call);
    return code ? qn_message_code(opt, code, quern_errmsg()) : status;
}

int qn_cast_begin(struct qn_cast *c, const struct qn_options *opt,
                  struct quern_context *ctx, const struct qn_quantization *q,
                  int backend)
{
    const struct quern_plan_options options = qn_call_options(opt, backend);
    const struct qn_call_data data = {.sizes = c->sizes,
                                      .groups = q->groups,
                                      .on_host = q->sizes != 0,
                                      .fill = fill,
                                      .user = c};
    struct qn_line line = {.kind = QN_LINE_CAST};
    int code, status;

    memset(c, 0, sizeof *c);
    c->q = *q;
    c->seed = opt->seed;
    status = draw_sizes(c, opt);
    if (status)
        return status;
    line.of.cast = c->q;
    code = qn_call_plan(&c->call, ctx, &line, &options);
    c->call.alike =
        opt->alike || !qn_scale_blocks(qn_context_recipe(ctx, q->recipe));
    if (!code)
        code = qn_call_make(&c->call, &data);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
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

struct qn_tensor qn_cast_copy(const struct qn_cast *c, int copy)
{
    const struct qn_memory *m =
        &c->call.memory[copy == QUERN_ROWWISE ? QUERN_ARG_ROWWISE
                                              : QUERN_ARG_COLUMNWISE];

    return (struct qn_tensor){
        .data = m[0].data, .sf = m[1].data, .global = (void *)m[2].data};
}

/* Is it none of the sizes and the states of casts? */
static int is_data(int arg)
{
    return arg != QUERN_ARG_WORKSPACE && arg != QUERN_ARG_LENGTHS &&
           arg != QUERN_ARG_RANDOM && arg != QUERN_ARG_SCALE &&
           arg != QUERN_ARG_HISTORY;
}

/* Rows in groups; all scales. */
double qn_cast_bytes(const struct qn_cast *c)
{
    const struct qn_quantization *q = &c->q;
    const struct quern_operand *column =
        qn_call_operand(&c->call, QUERN_ARG_COLUMNWISE);
    double all = q->of == QN_W ? (double)c->rows : (double)q->m, bytes = 0;
    double share = all > 0 ? (double)c->rows / all : 0;

    for (int arg = 0; arg < QUERN_ARGS_COUNT; arg++)
        if (is_data(arg))
            bytes += (double)c->call.memory[arg].bytes *
                     (arg == QUERN_ARG_DBIAS ? 1 : share);
    /* the columnwise tensor's bound is more than the bytes written */
    if (q->of != QN_W && c->call.memory[QUERN_ARG_COLUMNWISE].bytes) {
        double bound = (double)quern_extent(&column->shape[1], q->m), used = 0;

        for (int i = 0; i < q->groups; i++)
            used += (double)((c->sizes[i] + 127) / 128 * 128);
        bytes += (double)c->call.memory[QUERN_ARG_COLUMNWISE].bytes *
                 (used / bound - share);
    }
    return bytes;
}

/* ----------------------------------------------------------------- compare */

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

/* One operand; the first byte that differs is named. */
static int compare_one(const struct qn_cast *a, const struct qn_cast *b,
                       const struct quern_operand *o, double *differ,
                       char *where, size_t size)
{
    size_t bytes = a->call.memory[o->arg].bytes;
    unsigned char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    int code = x && y ? qn_memory_read(&a->call.memory[o->arg], 0, x, bytes)
                      : qn_error_memory();

    if (!code)
        code = qn_memory_read(&b->call.memory[o->arg], 0, y, bytes);
    if (!code && (o->arg == QUERN_ARG_DBIAS || o->arg == QUERN_ARG_DPROB)) {
        unify_nans(x, bytes);
        unify_nans(y, bytes);
    }
    for (size_t i = 0; i < bytes && !code; i++)
        if (x[i] != y[i] && (*differ)++ == 0)
            snprintf(where, size, ", the first %s[%zu]: %#x and %#x", o->name,
                     i, x[i], y[i]);
    free(x);
    free(y);
    return code;
}

int qn_cast_compare(const struct qn_cast *a, const struct qn_cast *b,
                    double *bytes, char *where, size_t size)
{
    int count, code = QUERN_OK;
    const struct quern_operand *o = quern_plan_operands(a->call.plan, &count);

    *bytes = 0;
    where[0] = 0;
    for (int i = 0; i < count && !code; i++)
        if (o[i].arg != QUERN_ARG_WORKSPACE)
            code = compare_one(a, b, &o[i], bytes, where, size);
    return code;
}

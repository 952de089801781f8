/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: a line with data, ready to run through quern.h. */
#include "oracle/call.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "base/types.h"

/* -------------------------------------------------------------------- plan */

struct quern_plan_options qn_call_options(const struct qn_options *opt,
                                          int backend)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;

    options.backend = backend;
    options.kernel = opt->kernel;
    options.streams = opt->streams;
    return options;
}

/* A list of lengths, which plans ignore, may be one of other rows. */
static void forget_list(struct qn_line *line)
{
    char *split = line->kind == QN_LINE_PRODUCT ? line->of.product.split
                  : line->kind == QN_LINE_CAST  ? line->of.cast.split
                  : qn_api_has_mlp(line->kind)  ? line->of.mlp.split
                                                : NULL;

    if (split && isdigit((unsigned char)*split))
        *split = 0;
}

static int create(struct qn_call *c, const struct qn_line *line,
                  const struct quern_plan_options *options)
{
    const size_t size = (size_t)qn_api_print(line, NULL, 0) + 1;
    char *text = malloc(size);
    int code = text ? QUERN_OK : qn_error_memory();

    if (!code) {
        qn_api_print(line, text, size);
        code = quern_plan_create(c->ctx, text, options, &c->plan);
    }
    free(text);
    return code ? code : quern_plan_info(c->plan, &c->info);
}

int qn_call_plan(struct qn_call *c, struct quern_context *ctx,
                 const struct qn_line *line,
                 const struct quern_plan_options *options)
{
    const struct quern_args empty = QUERN_ARGS_INIT;
    const struct quern_operand *o;
    struct qn_line plain = *line;
    const int64_t *rows = qn_api_rows(&plain);
    int count, code;

    forget_list(&plain);
    c->ctx = ctx;
    c->rows = rows ? *rows : 0;
    c->args = empty;
    code = create(c, &plain, options);
    o = quern_plan_operands(c->plan, &count);
    for (int i = 0; i < count; i++)
        c->phases |= o[i].read | o[i].written;
    if (code || c->info.backend == QUERN_BACKEND_HOST)
        return code;
    return qn_gpu_open(ctx, &c->gpu);
}

const struct quern_operand *qn_call_operand(const struct qn_call *c, int arg)
{
    int count;
    const struct quern_operand *o = quern_plan_operands(c->plan, &count);

    for (int i = 0; i < count; i++)
        if (o[i].arg == arg)
            return &o[i];
    return NULL;
}

/* ------------------------------------------------------------------ memory */

void qn_call_lend(struct qn_call *c, int arg, const struct qn_call *from,
                  int from_arg)
{
    c->host[arg] = from->host[from_arg];
    c->memory[arg] = from->memory[from_arg];
    c->lent[arg] = from->memory[from_arg].base != NULL;
}

static size_t packed_bytes(const struct qn_call *c,
                           const struct quern_operand *o)
{
    const int64_t bytes = quern_extent(&o->bytes, c->rows);
    const int factors = o->arg == QUERN_ARG_ALPHA || o->arg == QUERN_ARG_BETA;

    return (size_t)(factors && c->args.scalars ? c->args.scalars * bytes
                                               : bytes);
}

/* With the gaps between rows that the arguments say. */
static size_t all_bytes(const struct qn_call *c, const struct quern_operand *o)
{
    const int64_t stride = c->args.of[o->arg].stride;
    const size_t bytes = packed_bytes(c, o);
    const int64_t gap =
        stride ? stride - quern_extent(&o->shape[o->ndim - 1], c->rows) : 0;

    if (!bytes || !gap)
        return bytes;
    return bytes + (size_t)((quern_extent(&o->shape[0], c->rows) - 1) * gap *
                            qn_type_bits(o->type) / 8);
}

static int is_workspace(int arg)
{
    return arg == QUERN_ARG_WORKSPACE || arg == QUERN_ARG_ERRORS;
}

int qn_call_put(struct qn_call *c, int arg)
{
    const struct quern_operand *o = qn_call_operand(c, arg);
    const size_t element = (size_t)qn_type_bits(o->type) / 8;
    const size_t pitch = (size_t)c->args.of[arg].stride * element;
    struct qn_memory *m = &c->memory[arg];
    const char *from = c->host[arg];
    int code = QUERN_OK;

    if (is_workspace(arg))
        return qn_memory_workspace(m);
    if (!from)
        return qn_memory_clear(m, QN_MEMORY_POISON);
    if (!pitch)
        return qn_memory_write(m, 0, from, m->bytes);
    for (int64_t row = 0; row < quern_extent(&o->shape[0], c->rows) && !code;
         row++) {
        const size_t bytes =
            (size_t)quern_extent(&o->shape[1], c->rows) * element;

        code = qn_memory_write(m, (size_t)row * pitch,
                               from + (size_t)row * bytes, bytes);
    }
    return code;
}

int qn_call_draw(const struct qn_call *c, const struct quern_operand *o,
                 void *to, size_t bytes, uint64_t seed, float scale)
{
    const size_t count = bytes * 8 / (size_t)qn_type_bits(o->type);
    const int64_t columns =
        c->alike || o->ndim < 2 ? 0 : quern_extent(&o->pitch, c->rows);

    return qn_random_fill(to, o->type, count, (size_t)columns, seed, scale)
               ? QUERN_EINVAL
               : QUERN_OK;
}

/* Its contents in host memory; none stay if the answer is poison. */
static int fill(struct qn_call *c, const struct qn_call_data *data,
                const struct quern_operand *o)
{
    const size_t bytes = packed_bytes(c, o);
    void *to = malloc(bytes + 1);
    int code = to ? data->fill(data->user, o, to, bytes) : qn_error_memory();

    if (code)
        free(to);
    else
        c->host[o->arg] = to;
    if (code == QUERN_EINVAL)
        return qn_error_set(code, "%s: no values to draw", o->name);
    return code == QN_CALL_POISON ? QUERN_OK : code;
}

/* Addresses of an operand's matrices in place of its own. */
static int point(struct qn_call *c, int arg, int groups)
{
    const struct qn_memory *m = &c->memory[arg];
    struct quern_buffer *b = &c->args.of[arg];
    const size_t bytes = (size_t)groups * sizeof(void *);
    void *matrices[QUERN_MAX_GROUPS];
    int code = qn_memory_new(&c->pointers[arg], c->gpu, bytes);

    for (int g = 0; g < groups; g++)
        matrices[g] =
            m->data +
            (size_t)g * (m->pitch ? m->pitch : m->bytes / (size_t)groups);
    b->data = NULL;
    b->pointers = (void *const *)(void *)c->pointers[arg].data;
    return code ? code : qn_memory_write(&c->pointers[arg], 0, matrices, bytes);
}

/* Memory of an operand; addresses of matrices are aligned, each of them. */
static int allocate(struct qn_call *c, const struct qn_call_data *data,
                    const struct quern_operand *o)
{
    struct qn_memory *m = &c->memory[o->arg];
    const size_t bytes = all_bytes(c, o);

    return o->pointers && data->pointers
               ? qn_memory_matrices(m, c->gpu, bytes, (size_t)data->groups,
                                    o->alignment)
               : qn_memory_new(m, c->gpu, bytes);
}

/* Lengths are all that a run needs, 64 bits each. */
static int make_sizes(struct qn_call *c, const struct qn_call_data *data,
                      int arg)
{
    const size_t bytes = (size_t)data->groups * sizeof *data->sizes;
    int code;

    if (data->on_host)
        c->args.host_sizes = data->sizes;
    if (data->on_host || arg != QUERN_ARG_LENGTHS)
        return QUERN_OK;
    code = qn_memory_new(&c->memory[arg], c->gpu, bytes);
    c->args.of[arg].data = c->memory[arg].data;
    c->args.of[arg].type = QUERN_I64;
    return code ? code
                : qn_memory_write(&c->memory[arg], 0, data->sizes, bytes);
}

static int make_one(struct qn_call *c, const struct qn_call_data *data,
                    const struct quern_operand *o)
{
    const int arg = o->arg;
    int code = QUERN_OK;

    if (arg <= QUERN_ARG_ENDS && o->read)
        return make_sizes(c, data, arg);
    if (arg == QUERN_ARG_NOOP ||      /* no run is to be skipped */
        arg == QUERN_ARG_D_ADDRESSES) /* D has its rows */
        return QUERN_OK;
    if (!c->lent[arg]) {
        code = allocate(c, data, o);
        if (!code && !is_workspace(arg))
            code = fill(c, data, o);
        if (!code && (c->host[arg] || is_workspace(arg)))
            code = qn_call_put(c, arg);
    }
    c->args.of[arg].data = c->memory[arg].data;
    return code || !o->pointers || !data->pointers
               ? code
               : point(c, arg, data->groups);
}

int qn_call_make(struct qn_call *c, const struct qn_call_data *data)
{
    int count, code = QUERN_OK;
    const struct quern_operand *o = quern_plan_operands(c->plan, &count);

    for (int i = 0; i < count && !code; i++)
        code = make_one(c, data, &o[i]);
    return code;
}

int qn_call_reset(struct qn_call *c)
{
    int count, code = QUERN_OK;
    const struct quern_operand *o = quern_plan_operands(c->plan, &count);

    for (int i = 0; i < count && !code; i++)
        if (o[i].written && c->memory[o[i].arg].base)
            code = qn_call_put(c, o[i].arg);
    for (int i = 0; i < QUERN_ARGS_COUNT && !code; i++)
        if (c->memory[i].base && !qn_call_operand(c, i))
            code = qn_memory_clear(&c->memory[i], QN_MEMORY_POISON);
    return code;
}

void qn_call_free(struct qn_call *c)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        if (!c->lent[i]) {
            free(c->host[i]);
            qn_memory_free(&c->memory[i]);
        }
        qn_memory_free(&c->pointers[i]);
    }
    qn_gpu_close(c->gpu);
    quern_plan_destroy(c->plan);
    memset(c, 0, sizeof *c);
}

int qn_call_guards(const struct qn_call *c, int *intact)
{
    int code = QUERN_OK;

    *intact = 1;
    for (int i = 0; i < 2 * QUERN_ARGS_COUNT && !code; i++) {
        const struct qn_memory *m =
            i % 2 ? &c->pointers[i / 2] : &c->memory[i / 2];
        int fine = 1;

        if (m->base)
            code = qn_memory_guards(m, &fine);
        *intact &= fine;
    }
    return code;
}

/* --------------------------------------------------------------------- run */

/* Nothing if the line has no such phase. */
static int run_phase(struct qn_call *c, int phase)
{
    if (!(c->phases >> phase & 1))
        return QUERN_OK;
    c->args.phase = phase;
    return quern_run(c->plan, &c->args, NULL);
}

int qn_call_queue(struct qn_call *c)
{
    const int code = run_phase(c, QUERN_PHASE_FORWARD);

    return code ? code : run_phase(c, QUERN_PHASE_BACKWARD);
}

/* Lines without a workspace find no errors. */
int qn_call_check(const struct qn_call *c)
{
    return c->memory[QUERN_ARG_WORKSPACE].base
               ? quern_check(c->plan, &c->args, NULL)
               : QUERN_OK;
}

int qn_call_run(struct qn_call *c)
{
    int code = run_phase(c, QUERN_PHASE_WEIGHTS);

    if (!code)
        code = qn_call_queue(c);
    return code ? code : qn_call_check(c);
}

int qn_call_line(struct qn_call *c, struct quern_context *ctx,
                 const struct qn_line *line, int backend,
                 const struct qn_call_data *data)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    int code;

    options.backend = backend;
    code = qn_call_plan(c, ctx, line, &options);
    if (!code)
        code = qn_call_make(c, data);
    return code ? code : qn_call_run(c);
}

static int queue(void *call)
{
    return qn_call_queue(call);
}

int qn_call_measure(struct qn_call *c, int runs, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, c, c->gpu};
    int code = run_phase(c, QUERN_PHASE_WEIGHTS);

    if (!code)
        code = qn_timing_measure(&timed, runs, time);
    return code ? code : qn_call_check(c);
}

int qn_call_once(struct qn_call *c, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, c, c->gpu};
    int code = run_phase(c, QUERN_PHASE_WEIGHTS);

    memset(time, 0, sizeof *time);
    if (!code)
        code = qn_timing_runs(&timed, &time->seconds, 1, &time->load);
    time->least = time->seconds;
    time->runs = 1;
    return code ? code : qn_call_check(c);
}

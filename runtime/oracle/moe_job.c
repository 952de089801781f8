/* SPDX-License-Identifier: Apache-2.0 */
/* moe_job.c: a layer from unpermuted tokens with data, ready to run. */
#include "oracle/moe_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/context.h"
#include "base/error.h"
#include "base/random.h"
#include "base/types.h"
#include "oracle/timing.h"
#include "oracle/tolerance.h"
#include "problem/sizes.h"

/* ------------------------------------------------------------------ routes */

static int64_t pairs_of(const struct qn_moe_job *j)
{
    return j->moe.mlp.m * j->moe.topk;
}

int qn_moe_job_group(const struct qn_moe_job *j, int64_t pair)
{
    const int64_t group = j->index[pair] - j->moe.first;

    return group >= 0 && group < j->moe.mlp.groups &&
                   pair < j->tokens * j->moe.topk
               ? (int)group
               : -1;
}

int64_t qn_moe_job_sizes(const struct qn_moe_job *j, int64_t *sizes)
{
    int64_t rows = 0;

    memset(sizes, 0, (size_t)j->moe.mlp.groups * sizeof *sizes);
    for (int64_t i = 0; i < j->tokens * j->moe.topk; i++) {
        const int group = qn_moe_job_group(j, i);

        if (group >= 0)
            sizes[group]++;
        rows += group >= 0;
    }
    return rows;
}

/* Deal the experts' rows to tokens, in an order of tokens that is drawn: pairs
   of one expert are dealt to tokens in turn. Rows that are left over are of
   experts on other ranks, or of none. */
static void deal(struct qn_moe_job *j, const int64_t *sizes, int64_t *order)
{
    const int64_t m = j->moe.mlp.m, pairs = pairs_of(j);
    struct qn_route route;
    int64_t at = 0;
    int others, group = 0;

    qn_moe_route(&j->moe, QUERN_ROUTE, &route);
    others = qn_route_experts(&route) - route.groups;
    for (int64_t left = sizes[0]; at < pairs; at++) {
        const int64_t pair = order[at % m] * j->moe.topk + at / m;

        while (group < route.groups && !left)
            left = ++group < route.groups ? sizes[group] : 0;
        if (group < route.groups) {
            j->index[pair] = route.first + group;
            left--;
        } else {
            j->index[pair] = others
                                 ? (route.first + route.groups + at % others) %
                                       qn_route_experts(&route)
                                 : -1;
        }
    }
}

static int draw(struct qn_moe_job *j, const struct qn_options *opt,
                const int64_t *given)
{
    const struct qn_mlp *mlp = &j->moe.mlp;
    struct qn_route route;
    int64_t sizes[QUERN_MAX_GROUPS], *order;
    uint64_t seed = opt->seed + 1;
    char why[512];

    qn_moe_route(&j->moe, QUERN_ROUTE, &route);
    if (given)
        memcpy(sizes, given, (size_t)mlp->groups * sizeof *given);
    else if (qn_sizes_draw(mlp->split, mlp->groups,
                           pairs_of(j) * route.groups /
                               qn_route_experts(&route),
                           opt->seed, sizes, why, sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    j->index = malloc((size_t)pairs_of(j) * sizeof *j->index + 1);
    order = malloc((size_t)mlp->m * sizeof *order + 1);
    if (j->index && order && mlp->m) {
        for (int64_t i = 0; i < mlp->m; i++) {
            const int64_t other =
                (int64_t)(qn_random_next(&seed) % (uint64_t)(i + 1));

            order[i] = order[other];
            order[other] = i;
        }
        deal(j, sizes, order);
    }
    free(order);
    return j->index ? QN_EXIT_OK : qn_message_code(opt, QUERN_ENOMEM, NULL);
}

/* ------------------------------------------------------------------ buffers */

/* Set before a run; the others are poison then. */
static int has_contents(const struct quern_operand *o)
{
    if (o->arg == QUERN_ARG_SAVED || o->arg == QUERN_ARG_PENDING ||
        (o->arg >= QUERN_ARG_W1_ROWWISE &&
         o->arg <= QUERN_ARG_W2_COLUMNWISE_GLOBAL))
        return 0;
    return o->read || o->zero_bytes;
}

static float factor_of(const struct qn_recipe *recipe)
{
    return fminf(qn_tolerance_factor(recipe->x, 8),
                 fminf(qn_tolerance_factor(recipe->w, 8),
                       qn_tolerance_factor(recipe->dy, 8)));
}

/* Numbers that are drawn, some of them 0; or those of scaling. */
static void fill_numbers(const struct qn_moe_job *j, int arg, float *to,
                         size_t count, uint64_t seed)
{
    const float factor = factor_of(j->recipe);

    for (size_t i = 0; i < count; i++)
        to[i] = arg == QUERN_ARG_SCALE     ? (i % 2 ? 1 / factor : factor)
                : arg == QUERN_ARG_HISTORY ? 0
                : i % 7 == 3               ? 0
                             : (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
}

/* Values that a layer has: every result is about 1. */
static int fill(const struct qn_moe_job *j, const struct quern_operand *o,
                size_t bytes, uint64_t seed)
{
    const struct qn_mlp *mlp = &j->moe.mlp;
    const double inputs =
        o->arg == QUERN_ARG_W1   ? (double)mlp->hidden
        : o->arg == QUERN_ARG_W2 ? (double)mlp->ffn
        : o->ndim == 2 && o->type == QUERN_F32 && o->arg != QUERN_ARG_X ? 4
                                                                        : 1;
    void *to = j->host[o->arg];

    switch (o->arg) {
    case QUERN_ARG_INDEX:
        return 0;
    case QUERN_ARG_WORKSPACE:
    case QUERN_ARG_ERRORS:
        qn_memory_begin(to, bytes);
        return 0;
    case QUERN_ARG_RANDOM:
        for (size_t i = 0; i < bytes / 8; i++)
            ((uint64_t *)to)[i] = i % 2 ? 0 : seed + i;
        return 0;
    case QUERN_ARG_PROB:
    case QUERN_ARG_SCALE:
    case QUERN_ARG_HISTORY:
        fill_numbers(j, o->arg, to, bytes / sizeof(float), seed);
        return 0;
    default:
        return qn_random_fill(to, o->type,
                              bytes * 8 / (size_t)qn_type_bits(o->type), seed,
                              (float)(1 / sqrt(inputs)));
    }
}

static int make_one(struct qn_moe_job *j, const struct quern_operand *o,
                    uint64_t seed)
{
    const size_t bytes = (size_t)quern_extent(&o->bytes, j->moe.mlp.m);
    struct qn_memory *m = &j->memory[o->arg];
    int code = qn_memory_new(m, j->gpu, bytes);

    if (code || !bytes)
        return code;
    j->args.of[o->arg].data = m->data;
    if (!has_contents(o))
        return code;
    j->host[o->arg] = malloc(bytes);
    if (!j->host[o->arg])
        return qn_error_memory();
    if (fill(j, o, bytes, 64 * seed + (uint64_t)o->arg))
        return qn_error_set(QUERN_EINVAL, "%s: no values to draw", o->name);
    return o->arg == QUERN_ARG_INDEX
               ? qn_moe_job_route(j)
               : qn_memory_write(m, 0, j->host[o->arg], bytes);
}

int qn_moe_job_route(struct qn_moe_job *j)
{
    void *to = j->host[QUERN_ARG_INDEX];
    const size_t pairs = (size_t)pairs_of(j);

    for (size_t i = 0; i < pairs; i++)
        if (j->moe.index == QUERN_I64)
            ((int64_t *)to)[i] = j->index[i];
        else
            ((int32_t *)to)[i] = (int32_t)j->index[i];
    return pairs ? qn_memory_write(&j->memory[QUERN_ARG_INDEX], 0, to,
                                   j->memory[QUERN_ARG_INDEX].bytes)
                 : QUERN_OK;
}

int qn_moe_job_reset(struct qn_moe_job *j)
{
    int count, code = QUERN_OK;
    const struct quern_operand *o = quern_plan_operands(j->plan, &count);

    for (int i = 0; i < count && !code; i++) {
        struct qn_memory *m = &j->memory[o[i].arg];

        if (!m->base || !o[i].written)
            continue;
        code = j->host[o[i].arg]
                   ? qn_memory_write(m, 0, j->host[o[i].arg], m->bytes)
                   : qn_memory_clear(m, QN_MEMORY_POISON);
    }
    return code;
}

/* ------------------------------------------------------------------- begin */

static int plan(struct qn_moe_job *j, const struct qn_options *opt, int backend)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    char line[512];
    int code;

    options.backend = backend;
    options.kernel = opt->kernel;
    options.streams = opt->streams;
    qn_moe_print(&j->moe, line, sizeof line);
    code = quern_plan_create(j->ctx, line, &options, &j->plan);
    if (!code)
        code = quern_plan_info(j->plan, &j->info);
    if (code || j->info.backend == QUERN_BACKEND_HOST)
        return code;
    return qn_gpu_open(j->ctx, &j->gpu);
}

int qn_moe_job_begin(struct qn_moe_job *j, const struct qn_options *opt,
                     struct quern_context *ctx, const struct qn_moe *moe,
                     int backend, const int64_t *sizes)
{
    const struct quern_args empty = QUERN_ARGS_INIT;
    const struct quern_operand *o;
    int count, code, status;

    memset(j, 0, sizeof *j);
    j->ctx = ctx;
    j->moe = *moe;
    j->moe.mlp.pointers = 0; /* all matrices in one buffer */
    j->tokens = moe->mlp.m;
    j->args = empty;
    j->recipe = qn_context_recipe(ctx, moe->mlp.recipe);
    status = draw(j, opt, sizes);
    if (status)
        return status;
    code = plan(j, opt, backend);
    o = quern_plan_operands(j->plan, &count);
    for (int i = 0; i < count && !code; i++)
        code = make_one(j, &o[i], opt->seed);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

void qn_moe_job_free(struct qn_moe_job *j)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        free(j->host[i]);
        qn_memory_free(&j->memory[i]);
    }
    free(j->index);
    qn_gpu_close(j->gpu);
    quern_plan_destroy(j->plan);
    memset(j, 0, sizeof *j);
}

/* --------------------------------------------------------------------- run */

static int run_phase(struct qn_moe_job *j, int phase)
{
    j->args.rows = j->tokens;
    j->args.phase = phase;
    return quern_run(j->plan, &j->args, NULL);
}

static int queue(void *job)
{
    struct qn_moe_job *j = job;
    const int code = run_phase(j, QUERN_PHASE_FORWARD);

    return code || j->moe.mlp.forward_only ? code
                                           : run_phase(j, QUERN_PHASE_BACKWARD);
}

int qn_moe_job_run(struct qn_moe_job *j)
{
    int code = run_phase(j, QUERN_PHASE_WEIGHTS);

    if (!code)
        code = queue(j);
    return code ? code : quern_check(j->plan, &j->args, NULL);
}

int qn_moe_job_measure(struct qn_moe_job *j, int runs, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, j, j->gpu};
    int code = run_phase(j, QUERN_PHASE_WEIGHTS);

    if (!code)
        code = qn_timing_measure(&timed, runs, time);
    return code ? code : quern_check(j->plan, &j->args, NULL);
}

int qn_moe_job_once(struct qn_moe_job *j, struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, j, j->gpu};
    int code = run_phase(j, QUERN_PHASE_WEIGHTS);

    memset(time, 0, sizeof *time);
    if (!code)
        code = qn_timing_runs(&timed, &time->seconds, 1, &time->load);
    time->least = time->seconds;
    time->runs = 1;
    return code ? code : quern_check(j->plan, &j->args, NULL);
}

double qn_moe_job_flops(const struct qn_moe_job *j)
{
    const struct qn_mlp *mlp = &j->moe.mlp;
    const double sides =
        (double)mlp->hidden * (double)(qn_mlp_operands(mlp) + mlp->ffn);
    int64_t sizes[QUERN_MAX_GROUPS];

    return (mlp->forward_only ? 1 : 3) * 2 *
           (double)qn_moe_job_sizes(j, sizes) * sides;
}

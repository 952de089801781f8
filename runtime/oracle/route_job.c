/* SPDX-License-Identifier: Apache-2.0 */
/* route_job.c: a line about routes with data, ready to run. */
#include "oracle/route_job.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"
#include "base/random.h"
#include "base/types.h"

static int64_t pairs_of(const struct qn_route_job *j)
{
    return j->route.m * j->route.topk;
}

/* ------------------------------------------------------------------ buffers */

/* Experts of all ranks, or for one pair in eight none. */
static void draw_index(struct qn_route_job *j, void *to, uint64_t seed)
{
    const uint64_t experts = (uint64_t)qn_route_experts(&j->route);

    for (int64_t i = 0; i < pairs_of(j); i++) {
        const uint64_t drawn = qn_random_next(&seed);
        const int64_t expert =
            drawn % 8 == 3 ? -1 : (int64_t)((drawn >> 8) % experts);

        if (j->route.index == QUERN_I64)
            ((int64_t *)to)[i] = expert;
        else
            ((int32_t *)to)[i] = (int32_t)expert;
        j->rows += expert >= j->route.first &&
                   expert < j->route.first + j->route.groups;
    }
}

/* Rows in an order that is drawn: the first of them, as a route leaves none in
   between. */
static void draw_inverse(struct qn_route_job *j, int *to, uint64_t seed)
{
    const int64_t pairs = pairs_of(j);

    for (int64_t i = 0; i < pairs; i++) {
        const int64_t other =
            (int64_t)(qn_random_next(&seed) % (uint64_t)(i + 1));

        to[i] = to[other];
        to[other] = (int)i;
    }
    j->rows = pairs - pairs / 8;
    for (int64_t i = 0; i < pairs; i++)
        if (to[i] >= j->rows)
            to[i] = -1;
}

static int fill(struct qn_route_job *j, const struct quern_operand *o,
                size_t bytes, uint64_t seed)
{
    void *to = j->host[o->arg];

    if (o->arg == QUERN_ARG_INDEX)
        draw_index(j, to, seed);
    else if (o->arg == QUERN_ARG_INVERSE)
        draw_inverse(j, to, seed);
    else if (o->arg == QUERN_ARG_WORKSPACE)
        qn_memory_begin(to, bytes);
    else if (qn_random_fill(to, o->type,
                            bytes * 8 / (size_t)qn_type_bits(o->type), seed, 1))
        return qn_error_set(QUERN_EINVAL, "%s: no values to draw", o->name);
    return QUERN_OK;
}

static int make_one(struct qn_route_job *j, const struct quern_operand *o,
                    uint64_t seed)
{
    const size_t bytes = (size_t)quern_extent(&o->bytes, j->route.m);
    struct qn_memory *m = &j->memory[o->arg];
    int code;

    if (o->arg == QUERN_ARG_ERRORS) /* they are noted in the workspace */
        return QUERN_OK;
    code = qn_memory_new(m, j->gpu, bytes);
    if (code || !bytes)
        return code;
    j->args.of[o->arg].data = m->data;
    if (!o->read && !o->zero_bytes)
        return code;
    j->host[o->arg] = malloc(bytes);
    if (!j->host[o->arg])
        return qn_error_memory();
    code = fill(j, o, bytes, 64 * seed + (uint64_t)o->arg);
    return code ? code : qn_memory_write(m, 0, j->host[o->arg], bytes);
}

/* ------------------------------------------------------------------- begin */

static int plan(struct qn_route_job *j, const struct qn_options *opt,
                int backend)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    char line[512];
    int code;

    options.backend = backend;
    options.kernel = opt->kernel;
    options.streams = opt->streams;
    qn_route_print(&j->route, line, sizeof line);
    code = quern_plan_create(j->ctx, line, &options, &j->plan);
    if (!code)
        code = quern_plan_info(j->plan, &j->info);
    if (code || j->info.backend == QUERN_BACKEND_HOST)
        return code;
    return qn_gpu_open(j->ctx, &j->gpu);
}

int qn_route_job_begin(struct qn_route_job *j, const struct qn_options *opt,
                       struct quern_context *ctx, const struct qn_route *route,
                       int backend)
{
    const struct quern_args empty = QUERN_ARGS_INIT;
    const struct quern_operand *o;
    int count = 0, code;

    memset(j, 0, sizeof *j);
    j->ctx = ctx;
    j->route = *route;
    j->args = empty;
    code = plan(j, opt, backend);
    o = quern_plan_operands(j->plan, &count);
    for (int i = 0; i < count && !code; i++)
        code = make_one(j, &o[i], opt->seed);
    return code ? qn_message_code(opt, code, quern_errmsg()) : 0;
}

void qn_route_job_free(struct qn_route_job *j)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        free(j->host[i]);
        qn_memory_free(&j->memory[i]);
    }
    qn_gpu_close(j->gpu);
    quern_plan_destroy(j->plan);
    memset(j, 0, sizeof *j);
}

/* --------------------------------------------------------------------- run */

static int queue(void *job)
{
    struct qn_route_job *j = job;

    return quern_run(j->plan, &j->args, NULL);
}

/* Only routes note errors. */
static int look(struct qn_route_job *j)
{
    return j->route.work == QUERN_ROUTE ? quern_check(j->plan, &j->args, NULL)
                                        : QUERN_OK;
}

int qn_route_job_run(struct qn_route_job *j)
{
    const int code = queue(j);

    return code ? code : look(j);
}

int qn_route_job_measure(struct qn_route_job *j, int runs,
                         struct qn_job_time *time)
{
    const struct qn_timed timed = {queue, j, j->gpu};
    const int code = qn_timing_measure(&timed, runs, time);

    return code ? code : look(j);
}

/* Is it an operand of rows of experts, of which pairs may have none? */
static int is_rows(const struct qn_route_job *j, int arg)
{
    return arg == QUERN_ARG_GATHER || arg == QUERN_ARG_ROWS ||
           (arg == QUERN_ARG_OUTPUT && j->route.work == QUERN_PERMUTE) ||
           (arg == QUERN_ARG_INPUT && j->route.work == QUERN_COMBINE);
}

double qn_route_job_bytes(const struct qn_route_job *j)
{
    const double pairs = (double)pairs_of(j);
    const double share = pairs > 0 ? (double)j->rows / pairs : 0;
    double bytes = 0;

    for (int arg = 0; arg < QUERN_ARGS_COUNT; arg++)
        if (arg != QUERN_ARG_WORKSPACE)
            bytes +=
                (double)j->memory[arg].bytes * (is_rows(j, arg) ? share : 1);
    return bytes;
}

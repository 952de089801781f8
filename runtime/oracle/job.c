/* SPDX-License-Identifier: Apache-2.0 */
/*
** job.c: a problem with data, ready to run: shared by run, bench and demo.
*/
#include "oracle/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/gather_rules.h"
#include "problem/geometry.h"
#include "problem/scale.h"
#include "problem/sizes.h"
#include "oracle/adapted.h"
#include "oracle/copies.h"
#include "oracle/gathered.h"
#include "oracle/made.h"
#include "oracle/twice.h"

/* Without a ragged axis all groups have the problem's own sizes. */
static int draw_split(struct qn_job *job, uint64_t seed, char *why, size_t size)
{
    const struct qn_problem *p = &job->problem;

    if (p->ragged == QUERN_AXIS_NONE) {
        for (int i = 0; i < p->groups; i++)
            job->sizes[i] = p->m;
        return 0;
    }
    return qn_sizes_draw(p->split, p->groups, qn_geometry_length(p, p->ragged),
                         seed, job->sizes, why, size);
}

/* `sizes`, or those of the split; an exit status. */
static int draw_sizes(struct qn_job *job, const struct qn_options *opt,
                      const int64_t *sizes)
{
    const struct qn_problem *p = &job->problem;
    char why[512];
    int failed = 0;

    if (sizes)
        memcpy(job->sizes, sizes, (size_t)p->groups * sizeof *sizes);
    else
        failed = draw_split(job, opt->seed, why, sizeof why);
    for (int i = 0; i < p->groups && !failed; i++) {
        job->starts[i] = job->rows;
        job->rows += job->sizes[i];
    }
    return failed ? qn_message_fail(opt, QN_EXIT_USAGE, "%s", why) : QN_EXIT_OK;
}

/* ---------------------------------------------------------------- operands */

int64_t qn_job_length(const struct qn_job *job, int axis, int group)
{
    return axis == job->problem.ragged
               ? job->sizes[group]
               : qn_geometry_length(&job->problem, axis);
}

int64_t qn_job_columns(const struct qn_job *job, int role, int group)
{
    const struct qn_geometry *g = &job->operands[role];

    return g->inner_ragged ? job->sizes[group] : g->columns;
}

int64_t qn_job_token(const struct qn_job *job, int group, int64_t row)
{
    const int *pairs = job->call.host[QUERN_ARG_GATHER];

    return pairs[job->starts[group] + row] / qn_gather_topk(&job->problem);
}

int64_t qn_job_place(const struct qn_job *job, int64_t row)
{
    const int to = ((const int *)job->call.host[QUERN_ARG_SCATTER])[row];

    return to >= 0 && to < job->problem.m ? to : -1;
}

int64_t qn_job_element(const struct qn_job *job, int role, int group, int64_t x,
                       int64_t y)
{
    const struct qn_geometry *g = &job->operands[role];
    const int first = role == QN_ROLE_B ? QUERN_AXIS_N : QUERN_AXIS_M;
    int64_t row = g->outer == first ? x : y;
    int64_t column = g->outer == first ? y : x;

    if (g->gathered)
        row = qn_job_token(job, group, x);
    else if (job->problem.scatter && role == QN_ROLE_D)
        row = qn_job_place(job, job->starts[group] + x);
    else if (g->grouped)
        row += group * g->rows;
    else if (g->inner_ragged)
        column += job->starts[group];
    else
        row += job->starts[group];
    return row < 0 ? -1 : row * g->columns + column;
}

int qn_job_arg(int role)
{
    static const int args[QN_ROLES] = {
        [QN_ROLE_A] = QUERN_ARG_A,   [QN_ROLE_B] = QUERN_ARG_B,
        [QN_ROLE_C] = QUERN_ARG_C,   [QN_ROLE_D] = QUERN_ARG_D,
        [QN_ROLE_P] = QUERN_ARG_PRE, [QN_ROLE_T] = QUERN_ARG_D_COLUMNWISE};

    return args[role];
}

const struct qn_plan *qn_job_plan(const struct qn_job *job)
{
    return job->call.plan->of.product;
}

int qn_job_scaled(const struct qn_job *job)
{
    return job->operands[QN_ROLE_A].sf.scaling ||
           job->operands[QN_ROLE_B].sf.scaling;
}

int qn_job_read(const struct qn_job *job, int role, size_t start, void *to,
                size_t bytes)
{
    const size_t element = (size_t)qn_type_bits(job->problem.d_type) / 8;
    const struct qn_memory *memory = &job->call.memory[qn_job_arg(role)];
    const size_t row = (size_t)job->operands[role].columns * element;
    const size_t pitch =
        (size_t)job->call.args.of[qn_job_arg(role)].stride * element;
    int code = QUERN_OK;

    if (!pitch)
        return qn_memory_read(memory, start, to, bytes);
    for (size_t done = 0, count; done < bytes && !code; done += count) {
        const size_t at = (start + done) % row;

        count = row - at < bytes - done ? row - at : bytes - done;
        code = qn_memory_read(memory, (start + done) / row * pitch + at,
                              (char *)to + done, count);
    }
    return code;
}

/* The longest sum. */
static int64_t depth(const struct qn_job *job)
{
    int64_t most = 1;

    for (int g = 0; g < job->problem.groups; g++) {
        const int64_t k = qn_job_length(job, QUERN_AXIS_K, g);
        most = k > most ? k : most;
    }
    return most;
}

/* B is small, so that D is of the order of 1 for any k. */
static float scale_of(const struct qn_job *job, int role)
{
    return role == QN_ROLE_B ? 1 / sqrtf((float)depth(job)) : 1;
}

static uint64_t seed_of(const struct qn_job *job, int role)
{
    return 4 * job->seed + (uint64_t)role;
}

/* From 0.5 to 1.5, another one for each group. */
static void draw_factors(struct qn_job *job)
{
    uint64_t seed = job->seed;

    for (int i = 0; i < 2; i++)
        for (int g = 0; g < job->problem.groups; g++)
            job->factors[i][g] =
                0.5f + (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
}

/* ---------------------------------------------------------------- contents */

/* Scaled ones are made of other values. One that is not read keeps its poison,
   to show elements that no kernel wrote. */
static int fill_role(const struct qn_job *job, int role,
                     const struct quern_operand *o, void *to, size_t bytes)
{
    if (!o->read || job->operands[role].sf.scaling)
        return QN_CALL_POISON;
    return qn_call_draw(&job->call, o, to, bytes, seed_of(job, role),
                        scale_of(job, role));
}

/* Arrays next to the operands. */
static int fill_other(const struct qn_job *job, const struct quern_operand *o,
                      void *to, size_t bytes)
{
    switch (o->arg) {
    case QUERN_ARG_INPUT:
        return qn_call_draw(&job->call, o, to, bytes, seed_of(job, QN_ROLE_A),
                            1);
    case QUERN_ARG_ALPHA:
    case QUERN_ARG_BETA:
        memcpy(to, job->factors[o->arg == QUERN_ARG_BETA], bytes);
        return QUERN_OK;
    case QUERN_ARG_BIAS:
        return qn_call_draw(&job->call, o, to, bytes, job->seed ^ 0xB1A5, 1);
    case QUERN_ARG_LORA_A:
    case QUERN_ARG_LORA_B:
    case QUERN_ARG_LORA_SCALE:
        return qn_adapted_fill(job, o, to, bytes);
    case QUERN_ARG_PROB:
        return qn_call_draw(&job->call, o, to, bytes, job->seed ^ 0x960B, 1);
    case QUERN_ARG_GATHER:
        qn_gathered_draw(job, job->seed ^ 0x6A7E, to);
        return QUERN_OK;
    case QUERN_ARG_SCATTER:
        qn_gathered_scatter(job, job->seed ^ 0x5CA7, to);
        return QUERN_OK;
    case QUERN_ARG_DBIAS:
        memset(to, 0, bytes);
        return QUERN_OK;
    default:
        return qn_copies_state(o, qn_twice_factors, job->seed, to, bytes);
    }
}

static int fill(void *user, const struct quern_operand *o, void *to,
                size_t bytes)
{
    const struct qn_job *job = user;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if (qn_job_arg(role) == o->arg)
            return fill_role(job, role, o, to, bytes);
    return fill_other(job, o, to, bytes);
}

/* All buffers, and the arguments of runs. */
static int make(struct qn_job *job)
{
    const struct qn_problem *p = &job->problem;
    const struct qn_call_data data = {
        .sizes = job->sizes,
        .groups = p->groups,
        .on_host = p->sizes || job->call.info.backend == QUERN_BACKEND_CUBLASLT,
        .pointers = 1,
        .fill = fill,
        .user = job};
    int code;

    job->call.args.scalars = p->groups;
    code = qn_call_make(&job->call, &data);
    for (int role = QN_ROLE_A; role <= QN_ROLE_B && !code; role++)
        if (job->operands[role].sf.scaling &&
            !job->call.lent[qn_job_arg(role)] &&
            !(role == QN_ROLE_A && p->quantize))
            code = qn_copies_make(job, role, seed_of(job, role),
                                  scale_of(job, role));
    qn_made_hide(job);
    return code;
}

/* They go to the backend that has them; the library refuses them where neither
   does. */
static int streams_of(const struct qn_options *opt, int backend)
{
    const int other = opt->backend == QUERN_BACKEND_CUBLASLT ||
                      opt->against == QUERN_BACKEND_CUBLASLT;

    return backend == QUERN_BACKEND_CUBLASLT || !other ? opt->streams : 0;
}

/* Rows of D and P that are further apart than they are long. */
static void spread(struct qn_job *job, int gap)
{
    static const int args[] = {QUERN_ARG_D, QUERN_ARG_PRE};

    for (int i = 0; i < 2 && gap && !job->problem.copies; i++) {
        const struct quern_operand *o = qn_call_operand(&job->call, args[i]);

        if (o && o->strided && o->ndim == 2)
            job->call.args.of[args[i]].stride =
                quern_extent(&o->shape[1], job->call.rows) + gap;
    }
}

/* Plan, and open the GPU if the plan is for one. */
static int plan(struct qn_job *job, struct quern_context *ctx,
                const struct qn_options *opt, int backend, const char *kernel)
{
    const struct qn_line line = {.kind = QN_LINE_PRODUCT,
                                 .of.product = job->problem};
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    int code;

    options.backend = backend;
    options.kernel = kernel;
    options.sms = opt->sms;
    options.streams = streams_of(opt, backend);
    code = qn_call_plan(&job->call, ctx, &line, &options);
    job->recipe = qn_context_recipe(ctx, job->problem.recipe);
    job->call.alike = opt->alike || !qn_scale_blocks(job->recipe);
    if (!code)
        spread(job, opt->gap);
    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        qn_geometry_of(&job->problem, job->recipe, role, &job->operands[role]);
    return code;
}

int qn_job_begin(struct qn_job *job, const struct qn_options *opt,
                 struct quern_context *ctx, const struct qn_problem *problem,
                 const int64_t *sizes)
{
    int code, status;

    *job = (struct qn_job){.problem = *problem, .seed = opt->seed};
    status = draw_sizes(job, opt, sizes);
    if (status)
        return status;
    draw_factors(job);
    code = plan(job, ctx, opt, opt->backend, opt->kernel);
    if (!code)
        code = make(job);
    if (code)
        return qn_message_code(opt, code,
                               code == QUERN_ENOMEM ? NULL : quern_errmsg());
    return QN_EXIT_OK;
}

/* The result, and the workspace. */
static int is_own(int arg)
{
    return (arg >= QUERN_ARG_D && arg <= QUERN_ARG_D_GLOBAL) ||
           arg == QUERN_ARG_WORKSPACE || arg == QUERN_ARG_LENGTHS;
}

int qn_job_beside(struct qn_job *other, const struct qn_job *job,
                  const struct qn_options *opt)
{
    int code;

    *other = *job;
    memset(&other->call, 0, sizeof other->call);
    for (int arg = 0; arg < QUERN_ARGS_COUNT; arg++)
        if (!is_own(arg))
            qn_call_lend(&other->call, arg, &job->call, arg);
    code = plan(other, job->call.ctx, opt, opt->against, NULL);
    if (!code && !other->call.gpu != !job->call.gpu)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--against: one of %s and %s computes on the "
                               "host, the other on a GPU",
                               qn_backend_name(job->call.info.backend),
                               qn_backend_name(other->call.info.backend));
    if (!code)
        code = make(other);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

int qn_job_fresh(struct qn_job *job)
{
    int code;

    if (!job->call.host[QUERN_ARG_D])
        return QUERN_OK;
    code = qn_call_put(&job->call, QUERN_ARG_D);
    return code ? code : qn_call_run(&job->call);
}

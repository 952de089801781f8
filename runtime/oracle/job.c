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
#include "choose/describe_all.h"
#include "problem/gather_rules.h"
#include "problem/geometry.h"
#include "problem/sizes.h"
#include "product/args.h"
#include "oracle/backward.h"
#include "oracle/buffer.h"
#include "oracle/copies.h"
#include "oracle/gathered.h"
#include "oracle/made.h"
#include "oracle/timing.h"
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
    return job->pairs[job->starts[group] + row] / qn_gather_topk(&job->problem);
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
    else if (g->grouped)
        row += group * g->rows;
    else if (g->inner_ragged)
        column += job->starts[group];
    else
        row += job->starts[group];
    return row * g->columns + column;
}

/* Does the operand hold values before a run? */
static int is_read(const struct qn_job *job, int role)
{
    return role <= QN_ROLE_B ||
           (role == QN_ROLE_C && job->problem.beta == QUERN_BETA_ANY) ||
           (role == QN_ROLE_D && job->problem.beta == QUERN_BETA_ONE) ||
           (role == QN_ROLE_P && qn_geometry_backward(&job->problem));
}

static const struct qn_tensor *need_of(const struct qn_job *job, int role)
{
    return qn_args_tensor(&job->need.args, role);
}

int qn_job_scaled(const struct qn_job *job)
{
    return job->operands[QN_ROLE_A].sf.scaling ||
           job->operands[QN_ROLE_B].sf.scaling;
}

/* Random values for one operand: a host copy, and the buffer to run on. One
   that is not read keeps its poison, to show elements that no kernel wrote. */
static int fill_operand(struct qn_job *job, int role, uint64_t seed,
                        float scale)
{
    const struct qn_tensor *tensor = need_of(job, role);
    struct qn_memory *memory = &job->memory[role];
    int code;

    if (role == QN_ROLE_A && job->problem.quantize)
        return qn_made_fill(job, seed, scale);
    if (job->operands[role].sf.scaling && role <= QN_ROLE_B)
        return qn_copies_make(job, role, seed, scale);
    if (job->operands[role].sf.scaling)
        return qn_copies_room(job, role, tensor);
    code = qn_memory_new(memory, job->gpu, tensor->bytes);
    if (code || !is_read(job, role))
        return code;
    job->host[role] = malloc(tensor->bytes ? tensor->bytes : 1);
    if (!job->host[role])
        return QUERN_ENOMEM;
    if (qn_random_fill(job->host[role], tensor->type,
                       tensor->bytes * 8 / (size_t)qn_type_bits(tensor->type),
                       seed, scale))
        return QUERN_EINVAL;
    return qn_memory_write(memory, 0, job->host[role], tensor->bytes);
}

/* A buffer with a copy of `from`. */
static int fill_memory(struct qn_job *job, struct qn_memory *memory,
                       const void *from, size_t bytes)
{
    int code = qn_memory_new(memory, job->gpu, bytes);

    return code ? code : qn_memory_write(memory, 0, from, bytes);
}

/* The addresses of an operand's matrices, where the problem asks for them. */
static int fill_pointers(struct qn_job *job, int role)
{
    const struct qn_geometry *g = &job->operands[role];
    const size_t bytes =
        (size_t)(g->rows * g->columns) * (size_t)qn_type_bits(g->type) / 8;
    void *pointers[QUERN_MAX_GROUPS];

    if (!(job->problem.pointers >> role & 1))
        return QUERN_OK;
    for (int i = 0; i < job->problem.groups; i++)
        pointers[i] = job->memory[role].data + (size_t)i * bytes;
    return fill_memory(job, &job->pointers[role], pointers,
                       (size_t)job->problem.groups * sizeof *pointers);
}

/* From 0.5 to 1.5, another one for each group. */
static int fill_factors(struct qn_job *job, uint64_t seed)
{
    for (int i = 0; i < 2; i++)
        for (int g = 0; g < job->problem.groups; g++)
            job->factors[i][g] =
                0.5f + (float)(qn_random_next(&seed) >> 40) * 0x1p-24f;
    return fill_memory(job, &job->factors_memory, job->factors,
                       sizeof job->factors);
}

/* Random values, and a buffer with a copy of them. */
static int fill_array(struct qn_job *job, int64_t count, uint64_t seed,
                      float **numbers, struct qn_memory *memory)
{
    *numbers = malloc((size_t)(count + 1) * sizeof **numbers);
    if (!*numbers)
        return QUERN_ENOMEM;
    if (qn_random_fill(*numbers, QUERN_F32, (size_t)count, seed, 1))
        return QUERN_EINVAL;
    return fill_memory(job, memory, *numbers, (size_t)count * sizeof **numbers);
}

/* The bias and the rows' factors. */
static int fill_epilogue(struct qn_job *job, uint64_t seed)
{
    const struct qn_problem *p = &job->problem;
    int code = QUERN_OK;

    if (p->bias)
        code = fill_array(job, p->groups * p->n, seed ^ 0xB1A5, &job->bias,
                          &job->bias_memory);
    if (!code && p->probability)
        code = fill_array(job, p->m, seed ^ 0x960B, &job->probability,
                          &job->probability_memory);
    if (!code)
        code = qn_twice_fill(job, seed);
    if (!code)
        code = qn_gathered_fill(job, seed);
    return code ? code : qn_backward_fill(job);
}

static int fill_workspace(struct qn_job *job)
{
    int code =
        qn_memory_new(&job->workspace, job->gpu, job->info.workspace_bytes);

    return code ? code : qn_memory_workspace(&job->workspace);
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

/* All buffers. B is small, so that D is of the order of 1 for any k. */
static int fill_all(struct qn_job *job, uint64_t seed)
{
    const float small = 1 / sqrtf((float)depth(job));
    int code = fill_memory(job, &job->sizes_memory, job->sizes,
                           (size_t)job->problem.groups * sizeof *job->sizes);

    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        if (need_of(job, role)->ndim)
            code = fill_operand(job, role, 4 * seed + (uint64_t)role,
                                role == QN_ROLE_B ? small : 1);
    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        code = fill_pointers(job, role);
    if (!code)
        code = fill_factors(job, seed);
    if (!code)
        code = fill_epilogue(job, seed);
    if (!code)
        code = fill_workspace(job);
    return code;
}

/* One array for the sizes, in the field of the axis that it belongs to. */
static void point_sizes(struct qn_job *job)
{
    struct qn_tensor *tensors[QN_ROLES] = {
        [QN_ROLE_A] = &job->args.a, &job->args.b, &job->args.c, &job->args.d};

    for (int role = QN_ROLE_A; role <= QN_ROLE_D; role++) {
        tensors[role]->sizes_type = QUERN_I64;
        if (job->operands[role].grouped || job->operands[role].gathered ||
            role == QN_ROLE_C || (role == QN_ROLE_D && !job->problem.gather))
            continue;
        if (job->operands[role].inner_ragged)
            tensors[role]->last_dims = job->sizes_memory.data;
        else
            tensors[role]->first_dims = job->sizes_memory.data;
    }
}

/* The arguments of qn_run: those of the description, and the addresses. */
static int point(struct qn_job *job)
{
    const struct qn_problem *p = &job->problem;
    struct qn_args *args = &job->args;
    struct qn_tensor *all[QN_ROLES] = {&args->a, &args->b, &args->c,
                                       &args->d, &args->p, &args->t};
    int code;

    *args = job->need.args;
    code = qn_buffer_point(job);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (!(p->pointers >> role & 1))
            continue;
        all[role]->data = NULL;
        all[role]->pointers = (void *const *)(void *)job->pointers[role].data;
    }
    args->scalars = p->groups;
    qn_made_hide(job);
    if (job->info.backend != QUERN_BACKEND_CUBLASLT && !p->sizes)
        point_sizes(job);
    else if (p->ragged != QUERN_AXIS_NONE)
        args->host_sizes = job->sizes;
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

/* Plan, and open the GPU if the plan is for one. */
static int plan(struct qn_job *job, const struct qn_options *opt, int backend,
                const char *kernel)
{
    const struct qn_plan_options options = {.backend = backend,
                                            .kernel = kernel,
                                            .sms = opt->sms,
                                            .streams =
                                                streams_of(opt, backend)};
    int code = qn_describe(job->ctx, &job->problem, &job->need, &job->recipe);

    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        qn_geometry_of(&job->problem, job->recipe, role, &job->operands[role]);
    if (!code)
        code = qn_plan(job->ctx, &job->problem, &options, &job->plan);
    if (code)
        return code;
    qn_plan_info(job->plan, &job->info);
    if (job->info.backend == QUERN_BACKEND_HOST)
        return QUERN_OK;
    return qn_gpu_open(job->ctx, &job->gpu);
}

int qn_job_begin(struct qn_job *job, const struct qn_options *opt,
                 struct quern_context *ctx, const struct qn_problem *problem,
                 const int64_t *sizes)
{
    int code, status;

    *job = (struct qn_job){.ctx = ctx, .problem = *problem};
    status = draw_sizes(job, opt, sizes);
    if (status)
        return status;
    code = plan(job, opt, opt->backend, opt->kernel);
    if (!code)
        code = fill_all(job, opt->seed);
    if (!code)
        code = point(job);
    if (code)
        return qn_message_code(opt, code,
                               code == QUERN_ENOMEM ? NULL : qn_errmsg(ctx));
    return QN_EXIT_OK;
}

/* As it was before any run. */
static int reset_d(struct qn_job *job)
{
    struct qn_memory *d = &job->memory[QN_ROLE_D];

    return job->host[QN_ROLE_D]
               ? qn_memory_write(d, 0, job->host[QN_ROLE_D], d->bytes)
               : QUERN_OK;
}

int qn_job_beside(struct qn_job *other, const struct qn_job *job,
                  const struct qn_options *opt)
{
    int code;

    *other = (struct qn_job){
        .ctx = job->ctx,
        .problem = job->problem,
        .rows = job->rows,
        .borrowed = 1,
        .bias = job->bias,
        .probability = job->probability,
        .pairs = job->pairs,
        .numbers = job->numbers,
    };
    memcpy(other->sizes, job->sizes, sizeof other->sizes);
    memcpy(other->starts, job->starts, sizeof other->starts);
    memcpy(other->factors, job->factors, sizeof other->factors);
    memcpy(other->made, job->made, sizeof other->made);
    memcpy(other->host, job->host, sizeof other->host);
    qn_buffer_borrow(other, job);
    code = plan(other, opt, opt->against, NULL);
    if (!code && !other->gpu != !job->gpu)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--against: one of %s and %s computes on the "
                               "host, the other on a GPU",
                               qn_backend_name(job->info.backend),
                               qn_backend_name(other->info.backend));
    if (!code)
        code = qn_copies_room(other, QN_ROLE_D, &other->need.args.d);
    if (!code)
        code = reset_d(other);
    if (!code)
        code = fill_pointers(other, QN_ROLE_D);
    if (!code)
        code = fill_workspace(other);
    if (!code)
        code = point(other);
    return code ? qn_message_code(opt, code, qn_errmsg(job->ctx)) : QN_EXIT_OK;
}

void qn_job_free(struct qn_job *job)
{
    for (int role = QN_ROLE_A; role < QN_ROLES && !job->borrowed; role++)
        free(job->host[role]);
    if (!job->borrowed) {
        free(job->bias);
        free(job->probability);
        free(job->pairs);
        free(job->numbers);
    }
    qn_buffer_free(job);
    qn_gpu_close(job->gpu);
    qn_plan_free(job->plan);
    memset(job, 0, sizeof *job);
}

int qn_job_run(struct qn_job *job)
{
    return qn_run(job->plan, &job->args, NULL);
}

int qn_job_check(struct qn_job *job)
{
    return qn_check(job->plan, &job->args, NULL);
}

int qn_job_fresh(struct qn_job *job)
{
    int code;

    if (!job->host[QN_ROLE_D])
        return QUERN_OK;
    code = reset_d(job);
    if (!code)
        code = qn_job_run(job);
    return code ? code : qn_job_check(job);
}

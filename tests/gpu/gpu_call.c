/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_call.c: a product, a cast or an MLP with its buffers. */
#include "gpu_call.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

/* 0, or a code; the message tells. */
static int begin(struct gpu_call *c, const char *line)
{
    static const struct qn_options options = {
        .command = "gpu_suite", .backend = QUERN_BACKEND_JIT, .seed = 1};
    struct qn_problem problem;
    struct qn_quantization q;
    struct qn_mlp mlp;

    c->kind = !strncmp(line, "mlp ", 4) ? GPU_MLP
              : !fnmatch("?prop *", line, 0) || !fnmatch("?grad *", line, 0)
                  ? GPU_PRODUCT
                  : GPU_CAST;
    if (c->kind == GPU_PRODUCT)
        return qn_problem_parse(gpu_context, line, &problem) ||
               qn_job_begin(&c->job, &options, gpu_context, &problem, NULL);
    if (c->kind == GPU_CAST)
        return qn_quantize_parse(gpu_context, line, &q) ||
               qn_cast_begin(&c->cast, &options, gpu_context, &q,
                             QUERN_BACKEND_JIT);
    return qn_mlp_parse(gpu_context, line, &mlp) ||
           qn_layer_begin(&c->layer, &options, gpu_context, &mlp,
                          QUERN_BACKEND_JIT, NULL, 0);
}

static int add_part(struct gpu_call *c, struct qn_memory *memory)
{
    struct gpu_call_part *part = &c->parts[c->count];

    if (!memory->bytes)
        return QUERN_OK;
    if (c->count == GPU_CALL_PARTS)
        gpu_lost("gpu_call.c: GPU_CALL_PARTS is too small");
    part->memory = memory;
    part->before = malloc(memory->bytes);
    if (!part->before)
        return QUERN_ENOMEM;
    c->count++;
    c->most = memory->bytes > c->most ? memory->bytes : c->most;
    return qn_memory_read(memory, 0, part->before, memory->bytes);
}

/* A product's; if it makes A, A's too. */
static int add_product(struct gpu_call *c)
{
    struct qn_job *job = &c->job;
    struct qn_memory *const all[] = {&job->memory[QN_ROLE_D],
                                     &job->memory[QN_ROLE_P],
                                     &job->memory[QN_ROLE_T],
                                     &job->sf[QN_ROLE_D],
                                     &job->sf[QN_ROLE_T],
                                     &job->global[QN_ROLE_D],
                                     &job->global[QN_ROLE_T],
                                     &job->history,
                                     &job->dbias,
                                     &job->dprob,
                                     &job->column,
                                     &job->column_sf,
                                     &job->column_global,
                                     &job->memory[QN_ROLE_A],
                                     &job->sf[QN_ROLE_A],
                                     &job->global[QN_ROLE_A]};
    const int count = sizeof all / sizeof *all;
    int code = QUERN_OK;

    for (int i = 0; i < count - (job->problem.quantize ? 0 : 3) && !code; i++)
        code = add_part(c, all[i]);
    c->sizes = job->problem.sizes ? NULL : &job->sizes_memory;
    c->lengths = job->sizes;
    c->groups = job->problem.groups;
    c->rows = qn_geometry_length(&job->problem, job->problem.ragged);
    job->args.noop = (const int *)(const void *)c->noop.data;
    if (!code && job->problem.microbatches > 1)
        code = qn_queue(gpu_context, GPU_CALL_QUEUED, &c->queue);
    return code;
}

static int add_cast(struct gpu_call *c)
{
    struct qn_cast *cast = &c->cast;
    int code = QUERN_OK;

    for (int i = QN_CAST_SCALE; i < QN_CAST_PARTS && !code; i++)
        code = add_part(c, &cast->memory[i]);
    c->sizes = cast->q.sizes || !cast->memory[QN_CAST_SIZES].bytes
                   ? NULL
                   : &cast->memory[QN_CAST_SIZES];
    c->lengths = cast->sizes;
    c->groups = cast->q.groups;
    c->rows = cast->q.m;
    cast->args.noop = (const int *)(const void *)c->noop.data;
    return code;
}

static int add_mlp(struct gpu_call *c)
{
    struct qn_layer *l = &c->layer;
    int code = QUERN_OK;

    for (int i = QN_LAYER_SCALE; i < QN_LAYER_SAVED && !code; i++)
        code = add_part(c, &l->memory[i]);
    c->sizes = l->mlp.sizes ? NULL : &l->memory[QN_LAYER_SIZES];
    c->lengths = l->sizes;
    c->groups = l->mlp.groups;
    c->rows = l->mlp.m;
    if (!code && c->later == GPU_QUEUED)
        code = qn_queue(gpu_context, GPU_CALL_QUEUED, &c->queue);
    return code;
}

/* With the list of outputs, and a flag that says to run. */
int gpu_call_open(struct gpu_call *c, const char *line, int later)
{
    int code = begin(c, line);

    c->later = later;
    if (code)
        return code;
    code = qn_memory_new(&c->noop,
                         c->kind == GPU_PRODUCT ? c->job.gpu
                         : c->kind == GPU_CAST  ? c->cast.gpu
                                                : c->layer.gpu,
                         sizeof(int));
    if (!code)
        code = qn_memory_clear(&c->noop, 0);
    if (code)
        return code;
    return c->kind == GPU_PRODUCT ? add_product(c)
           : c->kind == GPU_CAST  ? add_cast(c)
                                  : add_mlp(c);
}

void gpu_call_close(struct gpu_call *c)
{
    for (int i = 0; i < c->count; i++)
        free(c->parts[i].before);
    qn_memory_free(&c->noop);
    qn_queue_free(c->queue);
    qn_job_free(&c->job);
    qn_cast_free(&c->cast);
    qn_layer_free(&c->layer);
}

/* The same product so many times, merged where kernels do that. */
static int run_queued(struct gpu_call *c, void *stream)
{
    int code = QUERN_OK;

    for (int i = 0; i < GPU_CALL_QUEUED && !code; i++)
        code = qn_queue_put(c->queue, c->job.plan, &c->job.args, 0);
    if (!code)
        code = qn_queue_flush(c->queue, 0, 0, stream);
    if (code)
        qn_queue_drop(c->queue, QUERN_ALL_LAYERS);
    return code;
}

/* Weights, forward and backward. */
static int run_mlp(struct gpu_call *c, void *stream)
{
    const struct qn_layer *l = &c->layer;
    struct qn_mlp_args args = l->args;
    int code = qn_mlp_weights(l->plan, &args, stream);

    if (!code)
        code = qn_mlp_forward(l->plan, &args, stream);
    if (c->later)
        args.dw1.data = args.dw2.data = NULL;
    if (!code)
        code = qn_mlp_backward(l->plan, &args, stream);
    if (!code && c->later == GPU_LATER)
        code = qn_mlp_wgrad(l->plan, &l->args, stream);
    if (!code && c->queue)
        code = qn_mlp_put(l->plan, &l->args, c->queue, 0);
    if (!code && c->queue)
        code = qn_queue_flush(c->queue, 0, 0, stream);
    return code;
}

int gpu_call_run(struct gpu_call *c, void *stream)
{
    if (c->kind == GPU_MLP)
        return run_mlp(c, stream);
    if (c->kind == GPU_CAST)
        return qn_quantize_run(c->cast.plan, &c->cast.args, stream);
    if (c->queue)
        return run_queued(c, stream);
    return qn_run(c->job.plan, &c->job.args, stream);
}

int gpu_call_check(struct gpu_call *c, void *stream)
{
    if (c->kind == GPU_MLP)
        return qn_mlp_run_check(c->layer.plan, &c->layer.args, stream);
    if (c->kind == GPU_CAST)
        return qn_quantize_run_check(c->cast.plan, &c->cast.args, stream);
    return qn_check(c->job.plan, &c->job.args, stream);
}

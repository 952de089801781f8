/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_call.c: a product, a cast or an MLP with its buffers. */
#include "gpu_call.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

static struct qn_call *call_of(struct gpu_call *c)
{
    return c->kind == GPU_PRODUCT ? &c->job.call
           : c->kind == GPU_CAST  ? &c->cast.call
                                  : &c->layer.call;
}

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

/* All that runs write, but for scratch memory. */
static int add_parts(struct gpu_call *c, struct qn_call *call)
{
    int count, code = QUERN_OK;
    const struct quern_operand *o = quern_plan_operands(call->plan, &count);

    for (int i = 0; i < count && !code; i++)
        if (o[i].written && o[i].arg != QUERN_ARG_WORKSPACE &&
            o[i].arg != QUERN_ARG_SAVED && o[i].arg != QUERN_ARG_PENDING)
            code = add_part(c, &call->memory[o[i].arg]);
    if (call->memory[QUERN_ARG_LENGTHS].base)
        c->sizes = &call->memory[QUERN_ARG_LENGTHS];
    c->rows = call->rows;
    return code;
}

/* Some runs go through a queue. */
static int add_queue(struct gpu_call *c)
{
    const int queued = c->kind == GPU_MLP ? c->later == GPU_QUEUED
                       : c->kind == GPU_PRODUCT
                           ? c->job.problem.microbatches > 1
                           : 0;

    return queued ? quern_queue_create(gpu_context, GPU_CALL_QUEUED, &c->queue)
                  : QUERN_OK;
}

static void find_groups(struct gpu_call *c)
{
    c->lengths = c->kind == GPU_PRODUCT ? c->job.sizes
                 : c->kind == GPU_CAST  ? c->cast.sizes
                                        : c->layer.sizes;
    c->groups = c->kind == GPU_PRODUCT ? c->job.problem.groups
                : c->kind == GPU_CAST  ? c->cast.q.groups
                                       : c->layer.mlp.groups;
}

/* With the list of outputs, and a flag that says to run. */
int gpu_call_open(struct gpu_call *c, const char *line, int later)
{
    int code = begin(c, line);
    struct qn_call *call = call_of(c);

    c->later = later;
    if (code)
        return code;
    find_groups(c);
    code = qn_memory_new(&c->noop, call->gpu, sizeof(int));
    if (!code)
        code = qn_memory_clear(&c->noop, 0);
    if (qn_call_operand(call, QUERN_ARG_NOOP))
        call->args.of[QUERN_ARG_NOOP].data = c->noop.data;
    if (!code)
        code = add_parts(c, call);
    return code ? code : add_queue(c);
}

void gpu_call_close(struct gpu_call *c)
{
    for (int i = 0; i < c->count; i++)
        free(c->parts[i].before);
    qn_memory_free(&c->noop);
    quern_queue_destroy(c->queue);
    qn_call_free(call_of(c));
}

/* The same product so many times, merged where kernels do that; or gradients
   of weights. */
static int run_queued(struct gpu_call *c, int count, void *stream)
{
    const struct qn_call *call = call_of(c);
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++)
        code = quern_queue_put(c->queue, call->plan, &call->args, 0);
    if (!code)
        code = quern_queue_flush(c->queue, 0, 0, stream);
    if (code)
        quern_queue_drop(c->queue, QUERN_ALL_LAYERS);
    return code;
}

/* Weights, forward and backward. */
static int run_mlp(struct gpu_call *c, void *stream)
{
    static const int phases[] = {QUERN_PHASE_WEIGHTS, QUERN_PHASE_FORWARD,
                                 QUERN_PHASE_BACKWARD, QUERN_PHASE_WGRAD};
    const struct qn_call *call = &c->layer.call;
    const int count = c->later == GPU_LATER ? 4 : 3;
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++) {
        struct quern_args args = call->args;

        args.phase = phases[i];
        if (c->later && args.phase == QUERN_PHASE_BACKWARD)
            args.of[QUERN_ARG_DW1].data = args.of[QUERN_ARG_DW2].data = NULL;
        code = quern_run(call->plan, &args, stream);
    }
    return code || !c->queue ? code : run_queued(c, 1, stream);
}

int gpu_call_run(struct gpu_call *c, void *stream)
{
    const struct qn_call *call = call_of(c);

    if (c->kind == GPU_MLP)
        return run_mlp(c, stream);
    if (c->queue)
        return run_queued(c, GPU_CALL_QUEUED, stream);
    return quern_run(call->plan, &call->args, stream);
}

int gpu_call_check(struct gpu_call *c, void *stream)
{
    const struct qn_call *call = call_of(c);

    return quern_check(call->plan, &call->args, stream);
}

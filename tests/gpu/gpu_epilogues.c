/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_epilogues.c: epilogues in launches of their own: from the sums of a
   product they make the bytes that the host does, D, P, dbias and dprob.
   Operands are small integers, so that sums are the same in any order. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/types.h"
#include "code/module.h"
#include "oracle/job.h"

enum { GROUPS = 5, ROWS = 171, MOST_KERNELS = 64 };

/* The last 3 rows belong to no group. */
static const int64_t lengths[GROUPS] = {17, 0, 130, 1, 20};

/* Widths of whole pieces of 16 bytes, of rows and of operands, and others;
   `gap` elements between rows. */
static const struct shape {
    int results, interleave, gap;
} shapes[] = {{136, 0, 0}, {144, 1, 8}, {64, 8, 0},  {36, 3, 0},
              {33, 0, 0},  {136, 0, 1}, {138, 1, 0}, {144, 16, 8}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* One run, on the GPU or the host. */
struct run {
    struct qn_job job;
    char *bytes[4]; /* D, P, dbias, dprob; NULL where there is none */
};

static const struct qn_memory *result(const struct run *r, int i)
{
    const struct qn_memory *const all[] = {
        &r->job.call.memory[QUERN_ARG_D], &r->job.call.memory[QUERN_ARG_PRE],
        &r->job.call.memory[QUERN_ARG_DBIAS],
        &r->job.call.memory[QUERN_ARG_DPROB]};

    return all[i];
}

static int put_integers(struct qn_job *job, int role)
{
    struct qn_memory *memory = &job->call.memory[qn_job_arg(role)];
    const int bf16 = job->operands[role].type == QUERN_BF16;
    unsigned short *to = malloc(memory->bytes + 1);
    uint64_t state = 7 + (uint64_t)role;
    int code;

    if (!to)
        return QUERN_ENOMEM;
    for (size_t i = 0; i < memory->bytes / 2; i++) {
        static const unsigned short ones[2][4] = {
            {0x0000, 0x3c00, 0xbc00, 0x4000}, {0x0000, 0x3f80, 0xbf80, 0x4000}};

        to[i] = ones[bf16][qn_random_next(&state) >> 40 & 3];
    }
    code = qn_memory_write(memory, 0, to, memory->bytes);
    free(to);
    return code;
}

/* Rows of D or P further apart, with values in all of it. */
static int spread(struct qn_job *job, int arg, int gap)
{
    const struct quern_operand *o = qn_call_operand(&job->call, arg);
    struct quern_buffer *b = &job->call.args.of[arg];
    struct qn_memory *memory = &job->call.memory[arg];
    size_t bytes;
    void *values;
    int code;

    if (!o)
        return QUERN_OK;
    b->stride = o->shape[1].base + gap;
    bytes = (size_t)(b->stride * ROWS * qn_type_bits(o->type) / 8);
    values = malloc(bytes);
    if (!values ||
        qn_random_fill(values, o->type, (size_t)(b->stride * ROWS), 0, 11, 1)) {
        free(values);
        return QUERN_ENOMEM;
    }
    qn_memory_free(memory);
    code = qn_memory_new(memory, job->call.gpu, bytes);
    if (!code)
        code = qn_memory_write(memory, 0, values, bytes);
    free(values);
    b->data = memory->data;
    return code;
}

static int run(struct run *r, int backend, const struct qn_problem *p, int gap)
{
    const struct qn_options options = {
        .command = "gpu_suite", .backend = backend, .seed = gpu_options.seed};
    struct qn_job *job = &r->job;
    int code = 0;

    if (qn_job_begin(job, &options, gpu_context, p, lengths))
        return QUERN_EINVAL;
    if (put_integers(job, QN_ROLE_A) || put_integers(job, QN_ROLE_B) ||
        spread(job, QUERN_ARG_D, gap) || spread(job, QUERN_ARG_PRE, gap))
        return QUERN_EINVAL;
    for (int i = 2; i < 4 && !code; i++)
        if (result(r, i)->base)
            code = qn_memory_clear((struct qn_memory *)result(r, i), 0);
    if (code || qn_call_queue(&job->call) || qn_call_check(&job->call))
        return QUERN_EINVAL;
    for (int i = 0; i < 4 && !code; i++) {
        const struct qn_memory *memory = result(r, i);

        if (!memory->base)
            continue;
        r->bytes[i] = malloc(memory->bytes + 1);
        code = r->bytes[i]
                   ? qn_memory_read(memory, 0, r->bytes[i], memory->bytes)
                   : QUERN_ENOMEM;
    }
    return code;
}

static void discard(struct run *r)
{
    for (int i = 0; i < 4; i++)
        free(r->bytes[i]);
    qn_call_free(&r->job.call);
}

/* "" or the first difference. */
static void compare(const struct run *gpu, const struct run *host, char *text,
                    size_t size)
{
    static const char *const names[] = {"D", "P", "dbias", "dprob"};

    for (int i = 0; i < 4 && !*text; i++)
        for (size_t at = 0; gpu->bytes[i] && at < result(gpu, i)->bytes; at++)
            if (gpu->bytes[i][at] != host->bytes[i][at]) {
                snprintf(text, size, "byte %zu of %s is %d, the host's is %d",
                         at, names[i], (unsigned char)gpu->bytes[i][at],
                         (unsigned char)host->bytes[i][at]);
                break;
            }
}

/* Has the kernel been loaded, as some plan took it? */
static int is_loaded(const struct qn_kernel *k)
{
    for (const struct qn_module *m = gpu_context->modules; m; m = m->next)
        if (m->handle && !strcmp(m->kernel->name, k->name))
            return 1;
    return 0;
}

/* Rows are aligned to 2 elements only, which no kernel with an activation
   takes. 0 if the activation has no such shape. */
static int write_line(const struct qn_kernel *k, int activation,
                      const struct shape *shape, int turn, char *line,
                      size_t size)
{
    static const char *const more[2][4] = {
        {"", " bias=1 prob=1 saved=1", " saved=1", " bias=1"},
        {" prob=1 dbias=1 dprob=1", "", " dbias=1", " prob=1 dprob=1"}};
    const int back = k->form == QN_BACKWARD;
    const int two = qn_activation_operands(activation) == 2;
    int used;

    if (shape->interleave && !two)
        return 0;
    used = snprintf(
        line, size, "%s %s g=%d m=%d n=%d k=24 d=%s layout=tn align=2%s",
        back ? "dgrad" : "fprop", k->input == QUERN_F16 ? "fp16" : "bf16",
        GROUPS, ROWS, shape->results * (two && !back ? 2 : 1),
        qn_type_name(k->input),
        activation ? more[back][turn % 4]
        : turn % 2 ? " bias=1 prob=1"
                   : " bias=1");
    if (activation)
        snprintf(line + used, size - (size_t)used,
                 " activation=%s "
                 "interleave=%d",
                 qn_activation_name(activation), shape->interleave);
    return 1;
}

static void try_line(const char *line, int gap)
{
    struct run gpu = {0}, host = {0};
    struct qn_problem p;
    char text[300] = "";

    if (qn_problem_parse(gpu_context, line, &p) ||
        run(&gpu, QUERN_BACKEND_JIT, &p, gap) ||
        run(&host, QUERN_BACKEND_HOST, &p, gap))
        snprintf(text, sizeof text, "%.200s", quern_errmsg());
    else
        compare(&gpu, &host, text, sizeof text);
    gpu_record(*text ? gpu_text("%s: %s", line, text) : NULL);
    discard(&gpu);
    discard(&host);
}

static int is_epilogue(const struct qn_kernel *k)
{
    return k->op == QN_EPILOGUE;
}

/* All shapes, or with --quick one of them. */
static void try_shapes(const struct qn_kernel *k, int activation)
{
    const int first = activation + (int)(gpu_options.seed % SHAPES);

    for (int i = 0; i < SHAPES; i++) {
        const struct shape *shape = &shapes[(first + i) % SHAPES];
        char line[300];

        if (!write_line(k, activation, shape, first + i, line, sizeof line))
            continue;
        try_line(line, shape->gap);
        if (gpu_options.quick)
            return;
    }
}

/* Each activation of each kernel. */
void gpu_epilogues(void)
{
    static const struct qn_kernel *kernels[MOST_KERNELS];
    const int count = gpu_variant_pick(is_epilogue, 1, kernels, MOST_KERNELS);

    if (!count)
        gpu_skip("no kernel here is an epilogue");
    for (int i = 0; i < count; i++) {
        for (int j = kernels[i]->form == QN_BACKWARD;
             j < QUERN_ACTIVATION_COUNT; j++)
            try_shapes(kernels[i], j);
        if (!is_loaded(kernels[i]))
            gpu_record(gpu_text("no line took %s", kernels[i]->name));
    }
}

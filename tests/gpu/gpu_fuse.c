/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_fuse.c: products that quantize A in their mainloop: D against float64,
   and to the byte against two launches, for any values; the columnwise tensor
   against the host's bytes; runs again, replays after the sizes have changed,
   and invalid sizes. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/made.h"
#include "base/types.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "product/plan.h"

/* More rows than one wave of tiles has, in groups of any length. */
static const struct qt_pattern many = {
    "many", 7, 7, {1300, 0, 1, 900, 129, 2049, 640}, 0};

/* The i-th problem of a kernel, other sides each time. */
static void write_line(const struct qn_kernel *k, const struct qt_case *c,
                       int i, char *line, size_t size)
{
    static const int columns[] = {16, 264, 8, 520},
                     steps[] = {520, 8, 1288, 72, 1024};

    snprintf(line, size, "%s %s g=%lld m=%lld n=%d k=%d d=%s quantize=%s%s",
             qn_op_name(k->op), k->recipe, (long long)c->groups,
             (long long)c->m, columns[i % 4], steps[i % 5],
             qn_type_name(k->d.type), k->quantize,
             k->op == QUERN_DGRAD && i % 2 ? " dbias=1" : "");
}

/* The outputs, as before any run. */
static int forget(struct qn_job *job)
{
    static const int all[] = {QUERN_ARG_A, QUERN_ARG_A_SF, QUERN_ARG_D,
                              QUERN_ARG_A_COLUMNWISE,
                              QUERN_ARG_A_COLUMNWISE_SF};
    int code = QUERN_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all && !code; i++)
        code = qn_memory_clear(&job->call.memory[all[i]], QN_MEMORY_POISON);
    return code;
}

/* The kernel of the same tile whose A is there. */
static const char *twin_of(const struct qn_kernel *k)
{
    const struct quern_registry *registry = gpu_registry();

    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *other = &registry->kernels[i];

        if (!qn_fuse_strategy(other) && other->op == k->op &&
            !strcmp(other->recipe, k->recipe) &&
            !strcmp(other->arch, k->arch) && other->d.type == k->d.type &&
            other->epilogue == k->epilogue &&
            !strcmp(other->schedule, k->schedule) &&
            !memcmp(other->tile, k->tile, sizeof k->tile))
            return other->name;
    }
    return NULL;
}

/* Blocks of zeros, infinities and NaN, and the smallest and largest values,
   each in rows of its own, next to values as they were. */
static int put_specials(struct qn_job *job)
{
    static const unsigned short specials[] = {0x0000, 0x7f80, 0xff80, 0x7fc0,
                                              0x0001, 0x7f7f, 0x8000};
    enum { COUNT = sizeof specials / sizeof *specials };
    const int64_t k = job->problem.k;
    unsigned short *numbers = job->call.host[QUERN_ARG_INPUT];

    for (int64_t i = 0; i < job->problem.m; i++)
        for (int64_t x = 0; x < k; x++)
            if (i % 3 == 0 && (x / 128 + i) % 2 == 0)
                numbers[i * k + x] = specials[i / 3 % COUNT];
            else if (i % 3 == 1 && (x + i) % 97 == 0)
                numbers[i * k + x] = specials[(i / 3 + x) % COUNT];
    return qn_memory_write(&job->call.memory[QUERN_ARG_INPUT], 0, numbers,
                           job->call.memory[QUERN_ARG_INPUT].bytes);
}

/* D's bytes as a run leaves them. Without `room` A has no address. */
static const char *run_for_d(struct qn_job *job, const struct quern_plan *plan,
                             int room, char *d)
{
    struct qn_memory *memory = &job->call.memory[QUERN_ARG_D];
    struct quern_args args = job->call.args;

    for (int arg = QUERN_ARG_A; arg <= QUERN_ARG_A_GLOBAL && !room; arg++)
        args.of[arg].data = NULL;
    if (qn_memory_clear(memory, QN_MEMORY_POISON) ||
        quern_run(plan, &args, NULL) || quern_check(plan, &args, NULL) ||
        qn_memory_read(memory, 0, d, memory->bytes))
        return quern_errmsg();
    return NULL;
}

/* The same by the cast's launch and a product of its copy, and with no room
   for a tensor that nothing writes. */
static const char *compare(struct qn_job *job, const struct qn_kernel *k)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    const size_t bytes = job->call.memory[QUERN_ARG_D].bytes;
    char *inside = malloc(bytes + 1), *apart = malloc(bytes + 1);
    struct quern_plan *plan = NULL;
    const char *bad = NULL;
    char line[512];

    options.backend = QUERN_BACKEND_JIT;
    options.kernel = twin_of(k);
    qn_problem_print(&job->problem, line, sizeof line);
    if (!inside || !apart)
        bad = "memory ran out";
    else if (!options.kernel)
        bad = "there is no such kernel that finds A quantized";
    else if (put_specials(job) || forget(job) ||
             quern_plan_create(gpu_context, line, &options, &plan))
        bad = quern_errmsg();
    if (!bad)
        bad = run_for_d(job, job->call.plan, 0, inside);
    if (!bad)
        bad = run_for_d(job, plan, 1, apart);
    if (!bad && memcmp(inside, apart, bytes) != 0)
        bad = "two launches give other bytes";
    quern_plan_destroy(plan);
    free(inside);
    free(apart);
    return bad;
}

/* The columnwise tensor that a run makes if it is asked to, by a launch
   before. */
static const char *ask_for_column(struct qn_job *job, char *text, size_t size)
{
    static const int column[] = {QUERN_ARG_A_COLUMNWISE,
                                 QUERN_ARG_A_COLUMNWISE_SF};
    struct quern_args args = job->call.args;
    int alike = 1;

    for (int i = 0; i < 2; i++)
        args.of[column[i]].data = job->call.memory[column[i]].data;
    if (forget(job) || quern_run(job->call.plan, &args, NULL) ||
        qn_call_check(&job->call) || qn_made_columns(job, &alike))
        return quern_errmsg();
    if (!alike)
        return "the columnwise tensor is not what the host quantizes to";
    return forget(job) || qn_call_queue(&job->call)
               ? quern_errmsg()
               : gpu_job_judge(job, "without a columnwise tensor", text, size);
}

static const char *go_through(struct qn_job *job, const struct qn_kernel *k,
                              char *text, size_t size)
{
    const char *bad = gpu_job_repeat(job, &job->call.memory[QUERN_ARG_D]);

    if (!bad)
        bad = gpu_job_resize(job, forget, text, size);
    if (!bad)
        bad = gpu_job_bad_size(job, forget, text, size);
    if (!bad)
        bad = ask_for_column(job, text, size);
    return bad ? bad : compare(job, k);
}

void gpu_fuse(void)
{
    static const struct gpu_jobs family = {
        .what = "fuse",
        .none = "no kernel here quantizes in its mainloop",
        .each = 5,
        .every = 3,
        .many = &many,
        .wanted = qn_fuse_strategy,
        .line = write_line,
        .forget = forget,
        .go_through = go_through};

    gpu_jobs_run(&family);
}

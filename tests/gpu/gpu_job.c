/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_job.c: families of jobs, as the CLI runs problems. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/job.h"
#include "oracle/oracle.h"

enum { JUDGED = 300, REPLAYS = 3, MOST_KERNELS = 1024 };

const char *gpu_job_repeat(struct qn_job *job, const struct qn_memory *memory)
{
    const size_t bytes = memory->bytes;
    char *before = malloc(bytes + 1), *after = malloc(bytes + 1);
    const char *bad = NULL;

    if (!before || !after)
        bad = "memory ran out";
    else if (qn_memory_read(memory, 0, before, bytes) ||
             qn_call_queue(&job->call) || qn_call_check(&job->call) ||
             qn_memory_read(memory, 0, after, bytes))
        bad = quern_errmsg();
    else if (memcmp(before, after, bytes) != 0)
        bad = "another run gives other bytes";
    free(before);
    free(after);
    return bad;
}

const char *gpu_job_judge(struct qn_job *job, const char *when, char *text,
                          size_t size)
{
    struct qn_verdict verdict;
    size_t used = (size_t)snprintf(text, size, "%s: ", when);

    if (qn_call_check(&job->call) ||
        qn_oracle_judge(job, QN_ORACLE_FLOAT64, JUDGED, &verdict))
        return quern_errmsg();
    if (verdict.passed)
        return NULL;
    qn_oracle_print(&verdict, text + used, size - used);
    return text;
}

/* Are the rows of A quantized with scales of their group, so that its sizes
   stay? */
static int keeps_sizes(const struct qn_job *job)
{
    const struct qn_scaling *s = job->operands[QN_ROLE_A].sf.scaling;

    return s && (s->span == QN_SPAN_GROUP || s->span == QN_SPAN_TENSOR);
}

/* Other sizes on the device: those there are, one group further on. */
static int turn_sizes(struct qn_job *job)
{
    const int groups = job->problem.groups;
    const int64_t first = job->sizes[0];
    int64_t row = 0;

    if (keeps_sizes(job))
        return QUERN_OK;
    for (int g = 0; g + 1 < groups; g++)
        job->sizes[g] = job->sizes[g + 1];
    job->sizes[groups - 1] = first > 3 ? first - 3 : first;
    for (int g = 0; g < groups; g++) {
        job->starts[g] = row;
        row += job->sizes[g];
    }
    job->rows = row;
    if (job->problem.sizes)
        return QUERN_OK; /* runs read the list itself */
    return qn_memory_write(&job->call.memory[QUERN_ARG_LENGTHS], 0, job->sizes,
                           (size_t)groups * sizeof *job->sizes);
}

const char *gpu_job_bad_size(struct qn_job *job, int (*forget)(struct qn_job *),
                             char *text, size_t size)
{
    const int64_t wrong = -5;

    if (qn_memory_write(&job->call.memory[QUERN_ARG_LENGTHS], 0, &wrong,
                        sizeof wrong) ||
        qn_call_queue(&job->call))
        return quern_errmsg();
    if (qn_call_check(&job->call) != QUERN_ESIZES)
        return "a negative length was not reported";
    if (turn_sizes(job) || forget(job) || qn_call_queue(&job->call))
        return quern_errmsg();
    return gpu_job_judge(job, "after bad sizes", text, size);
}

const char *gpu_job_resize(struct qn_job *job, int (*forget)(struct qn_job *),
                           char *text, size_t size)
{
    if (turn_sizes(job) || forget(job) || qn_call_queue(&job->call))
        return quern_errmsg();
    return gpu_job_judge(job, "other sizes", text, size);
}

/* Captured once, replayed with sizes that changed since. */
static const char *replay(struct qn_job *job, int (*forget)(struct qn_job *),
                          char *text, size_t size)
{
    void *stream, *executable;
    const char *bad = NULL;

    gpu_must(cu.stream_create(&stream, GPU_NON_BLOCKING), "a stream");
    gpu_capture_begin(stream);
    executable = gpu_capture_end(
        stream, quern_run(job->call.plan, &job->call.args, stream));
    if (!executable)
        bad = quern_errmsg();
    for (int i = 0; i < REPLAYS && !bad; i++) {
        if (turn_sizes(job) || forget(job))
            bad = quern_errmsg();
        gpu_must(cu.synchronize(), "what the replay reads");
        gpu_must(cu.graph_launch(executable, stream), "a replay");
        gpu_wait(stream, "a replay");
        if (!bad)
            bad = gpu_job_judge(job, "replayed", text, size);
    }
    if (executable)
        gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    gpu_must(cu.stream_destroy(stream), "freeing a stream");
    return bad;
}

/* ---------------------------------------------------------------- families */

/* The family in progress. */
static struct {
    const struct gpu_jobs *family;
    int count;
    const struct qn_kernel *kernels[MOST_KERNELS];
    char result[MOST_KERNELS][GPU_JOBS][700]; /* "" if nothing is wrong */
} work;

static void run_one(int number, int i)
{
    const struct gpu_jobs *f = work.family;
    const struct qn_kernel *k = work.kernels[number];
    const struct qn_options options = {.command = "gpu_suite",
                                       .backend = QUERN_BACKEND_JIT,
                                       .kernel = k->name,
                                       .gap = i % 2 * 8,
                                       .seed = gpu_options.seed};
    const int turn = number * f->each + i;
    const struct qt_pattern *pattern =
        f->many && i % 4 == 0 ? f->many : &qt_patterns[turn % qt_npatterns];
    struct qt_case c = {.what = f->what, .type = QUERN_BF16, .seed = 5};
    struct qn_problem problem;
    struct qn_job job = {0};
    char line[400], text[512] = "";
    const char *bad = NULL;

    qt_case_op(&c, k->op);
    qt_case_layout(&c, pattern);
    f->line(k, &c, turn, line, sizeof line);
    if (qn_problem_parse(gpu_context, line, &problem) ||
        qn_job_begin(&job, &options, gpu_context, &problem, c.length) ||
        qn_call_queue(&job.call))
        bad = quern_errmsg();
    else
        bad = gpu_job_judge(&job, "the first run", text, sizeof text);
    if (!bad && i == f->each - 1)
        bad = replay(&job, f->forget, text, sizeof text);
    else if (!bad)
        bad = f->go_through(&job, k, text, sizeof text);
    if (bad)
        snprintf(work.result[number][i], sizeof work.result[number][i],
                 "%.200s, %s, %s: %.250s", line, pattern->name, k->name, bad);
    qn_call_free(&job.call);
}

/* All but the last problem of each kernel. */
static void run_any(int i, void *unused)
{
    (void)unused;
    run_one(i / (work.family->each - 1), i % (work.family->each - 1));
}

/* Side by side, as most of the time is the compiler's and the host's; but a
   capture disturbs others. */
void gpu_jobs_run(const struct gpu_jobs *family)
{
    const int each = family->each;

    memset(&work, 0, sizeof work);
    work.family = family;
    work.count = gpu_variant_pick(family->wanted, family->every, work.kernels,
                                  MOST_KERNELS);
    if (!work.count) {
        gpu_skip(family->none);
        return;
    }
    gpu_spread((each - 1) * work.count, run_any, NULL);
    for (int i = 0; i < work.count; i++)
        run_one(i, each - 1);
    for (int i = 0; i < each * work.count; i++) {
        const char *bad = work.result[i / each][i % each];
        gpu_record(*bad ? bad : NULL);
    }
}

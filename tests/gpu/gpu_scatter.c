/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_scatter.c: products whose rows go to rows of D through indices: D against
   float64, rows that no index names untouched; runs again, replays after the
   sizes have changed. */
#include "gpu.h"

#include <stdio.h>

#include "base/types.h"
#include "choose/tensormap.h"
#include "oracle/job.h"

static int goes_to_rows(const struct qn_kernel *k)
{
    return k->op <= QUERN_WGRAD && qn_tensormap_takes(k, QN_PARAM_scatter);
}

/* The i-th problem of a kernel, other sides each time. */
static void write_line(const struct qn_kernel *k, const struct qt_case *c,
                       int i, char *line, size_t size)
{
    static const int columns[] = {64, 320, 72, 576}, steps[] = {520, 8, 1288};

    snprintf(line, size, "%s %s g=%d m=%lld n=%d k=%d d=%s layout=%s scatter=1",
             qn_op_name(k->op), k->recipe, c->groups, (long long)c->m,
             columns[i % 4], steps[i % 3], qn_type_name(k->d.type),
             qn_layout_name(k->a.major, k->b.major));
}

static int forget(struct qn_job *job)
{
    return qn_memory_clear(&job->call.memory[QUERN_ARG_D], QN_MEMORY_POISON);
}

static const char *go_through(struct qn_job *job, const struct qn_kernel *k,
                              char *text, size_t size)
{
    const char *bad = gpu_job_repeat(job, &job->call.memory[QUERN_ARG_D]);

    (void)k;
    return bad ? bad : gpu_job_resize(job, forget, text, size);
}

void gpu_scatter(void)
{
    static const struct gpu_jobs family = {
        .what = "scatter",
        .none = "no kernel here writes rows through indices",
        .each = 4,
        .every = 5,
        .wanted = goes_to_rows,
        .line = write_line,
        .forget = forget,
        .go_through = go_through};

    gpu_jobs_run(&family);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_lora.c: products that go on along k with low-rank adapters: D and lora_t
   against float64; runs again, replays after the sizes have changed, and
   invalid sizes. */
#include "gpu.h"

#include <stdio.h>

#include "base/types.h"
#include "choose/tensormap.h"
#include "oracle/job.h"

static int goes_on(const struct qn_kernel *k)
{
    return k->op <= QUERN_WGRAD && qn_tensormap_takes(k, QN_PARAM_extra_k);
}

/* The i-th problem of a kernel, other sides and another rank each time. Maps
   need ranks that are multiples of 8. */
static void write_line(const struct qn_kernel *k, const struct qt_case *c,
                       int i, char *line, size_t size)
{
    static const int columns[] = {64, 320, 72, 576}, steps[] = {520, 8, 1288},
                     ranks[] = {8, 64, 256, 16, 72, 128};
    const int mapped = qn_tensormap_takes(k, QN_PARAM_extra_a_map);

    snprintf(line, size, "%s %s g=%d m=%lld n=%d k=%d d=%s layout=%s%s lora=%d",
             qn_op_name(k->op), k->recipe, c->groups, (long long)c->m,
             columns[i % 4], steps[i % 3], qn_type_name(k->d.type),
             qn_layout_name(k->a.major, k->b.major),
             k->epilogue == QN_SCALE ? " alpha=any" : "",
             mapped ? ranks[i % 6] : ranks[i % 6] - i % 8);
}

static int forget(struct qn_job *job)
{
    int code =
        qn_memory_clear(&job->call.memory[QUERN_ARG_D], QN_MEMORY_POISON);

    return code ? code
                : qn_memory_clear(&job->call.memory[QUERN_ARG_LORA_T],
                                  QN_MEMORY_POISON);
}

static const char *go_through(struct qn_job *job, const struct qn_kernel *k,
                              char *text, size_t size)
{
    const char *bad = gpu_job_repeat(job, &job->call.memory[QUERN_ARG_D]);

    (void)k;
    if (!bad)
        bad = gpu_job_repeat(job, &job->call.memory[QUERN_ARG_LORA_T]);
    if (!bad)
        bad = gpu_job_resize(job, forget, text, size);
    return bad ? bad : gpu_job_bad_size(job, forget, text, size);
}

void gpu_lora(void)
{
    static const struct gpu_jobs family = {
        .what = "lora",
        .none = "no kernel here goes on along k with adapters",
        .each = 4,
        .every = 5,
        .wanted = goes_on,
        .line = write_line,
        .forget = forget,
        .go_through = go_through};

    gpu_jobs_run(&family);
}

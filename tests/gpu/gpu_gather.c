/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_gather.c: products that read rows of A through indices: D against
   float64; runs again, replays after the sizes have changed, invalid sizes and
   indices of no row. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "choose/tensormap.h"
#include "oracle/job.h"

static int gathers(const struct qn_kernel *k)
{
    return k->op <= QUERN_WGRAD && qn_tensormap_takes(k, QN_PARAM_gather);
}

/* The i-th problem of a kernel, other sides each time; of codes, k is whole
   pieces of 16 bytes, and results that become copies are whole blocks. */
static void write_line(const struct qn_kernel *k, const struct qt_case *c,
                       int i, char *line, size_t size)
{
    static const int columns[][4] = {{64, 320, 128, 576}, {256, 512, 768, 256}},
                     steps[][5] = {{520, 8, 1288, 72, 1024},
                                   {528, 16, 1296, 80, 1024}};
    const int codes = qn_tensormap_takes(k, QN_PARAM_a_sf);
    const int back = k->epilogue == QN_GRADIENT_COPIES,
              copies = back || k->epilogue == QN_COPIES;
    const int topk = 1 + i % 8,
              none = !k->activation || !strcmp(k->activation, "none");
    const int any = k->epilogue == QN_SCALE || k->epilogue == QN_ALPHA;
    char more[200] = "";

    if (k->epilogue == QN_ACTIVATE && none)
        snprintf(more, sizeof more, " bias=1");
    else if (copies && none)
        snprintf(more, sizeof more, " copies=both");
    else if (copies)
        snprintf(more, sizeof more,
                 " activation=%s interleave=%d prob=1 %s copies=%s",
                 k->activation, k->interleave,
                 back ? "dprob=1 dbias=1" : "bias=1 saved=1",
                 i % 2 ? "rowwise" : "both");
    else if (k->epilogue >= QN_ACTIVATE)
        snprintf(more, sizeof more, " activation=%s interleave=%d prob=1 %s",
                 k->activation, k->interleave,
                 k->epilogue == QN_ACTIVATE ? "bias=1 saved=1" : "dprob=1");
    snprintf(line, size,
             "%s %s g=%d m=%lld n=%d k=%d d=%s layout=%s%s%s%s gather=a "
             "tokens=%lld topk=%d",
             qn_op_name(k->op), k->recipe, c->groups, (long long)c->m,
             columns[copies][i % 4], steps[codes][i % 5],
             qn_type_name(k->d.type), qn_layout_name(k->a.major, k->b.major),
             any ? " alpha=any" : "",
             k->epilogue == QN_SCALE ? " beta=any" : "", more,
             (long long)(c->m / topk + 1), topk);
}

/* The outputs, as before any run: with saved=1 the pre-activation is one, and
   copies have scales. */
static int forget(struct qn_job *job)
{
    static const int all[] = {QUERN_ARG_D, QUERN_ARG_D_SF, QUERN_ARG_PRE,
                              QUERN_ARG_D_COLUMNWISE,
                              QUERN_ARG_D_COLUMNWISE_SF};
    int code = QUERN_OK;

    for (int i = 0; i < 5 && !code; i++)
        if (job->call.memory[all[i]].base &&
            (all[i] != QUERN_ARG_PRE || job->problem.saved))
            code = qn_memory_clear(&job->call.memory[all[i]], QN_MEMORY_POISON);
    return code;
}

/* The last row of D has no value but 0, of either sign. */
static int last_row_is_zero(const struct qn_job *job)
{
    const struct qn_problem *p = &job->problem;
    const size_t each = (size_t)qn_type_bits(p->d_type) / 8;
    const size_t bytes = (size_t)p->n * each;
    unsigned char *row = calloc(1, bytes);
    int group = p->groups - 1, zero = row != NULL;
    int64_t at;

    while (group > 0 && job->sizes[group] == 0)
        group--;
    at = qn_job_element(job, QN_ROLE_D, group, job->sizes[group] - 1, 0);
    zero = zero && !qn_job_read(job, QN_ROLE_D, (size_t)at * each, row, bytes);
    for (size_t i = 0; i < bytes && zero; i++)
        zero = !(row[i] & (i % each == each - 1 ? 0x7f : 0xff));
    free(row);
    return zero;
}

/* Indices of no row are reported and read nothing: zeros stand for the row.
   Then runs are as before. */
static const char *bad_index(struct qn_job *job, const struct qn_kernel *k,
                             char *text, size_t size)
{
    static const int wrong[] = {-1, INT32_MAX, INT32_MIN};
    const int *pairs = job->call.host[QUERN_ARG_GATHER];

    if (!job->rows)
        return NULL;
    for (int i = 0; i < 3; i++) {
        const int64_t at = job->rows - 1;

        if (qn_memory_write(&job->call.memory[QUERN_ARG_GATHER],
                            (size_t)at * sizeof(int), &wrong[i], sizeof(int)) ||
            qn_call_queue(&job->call))
            return quern_errmsg();
        snprintf(text, size, "gather[%lld] is %d: it names none", (long long)at,
                 wrong[i]);
        if (qn_call_check(&job->call) != QUERN_ESIZES)
            return "an index of no row was not reported";
        if (strncmp(quern_errmsg(), text, strlen(text)) != 0)
            return quern_errmsg();
        if (k->epilogue == QN_STORE && !last_row_is_zero(job))
            return "the row of D of an index of no row is not 0";
        if (qn_memory_write(&job->call.memory[QUERN_ARG_GATHER],
                            (size_t)at * sizeof(int), &pairs[at],
                            sizeof(int)) ||
            forget(job) || qn_call_queue(&job->call))
            return quern_errmsg();
    }
    return gpu_job_judge(job, "after bad indices", text, size);
}

static const char *go_through(struct qn_job *job, const struct qn_kernel *k,
                              char *text, size_t size)
{
    const char *bad = gpu_job_repeat(job, &job->call.memory[QUERN_ARG_D]);

    if (!bad)
        bad = bad_index(job, k, text, size);
    if (!bad)
        bad = gpu_job_resize(job, forget, text, size);
    return bad ? bad : gpu_job_bad_size(job, forget, text, size);
}

void gpu_gather(void)
{
    static const struct gpu_jobs family = {
        .what = "gather",
        .none = "no kernel here reads rows through indices",
        .each = 4,
        .every = 5,
        .wanted = gathers,
        .line = write_line,
        .forget = forget,
        .go_through = go_through};

    gpu_jobs_run(&family);
}

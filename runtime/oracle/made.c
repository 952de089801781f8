/* SPDX-License-Identifier: Apache-2.0 */
/* made.c: jobs whose runs make the copies of A, from values. */
#include "oracle/made.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/backward.h"
#include "oracle/copies.h"
#include "base/error.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/scale.h"

/* The rowwise and the columnwise tensor, each with two kinds of scales. */
enum { ROW, COLUMN = 3, TENSORS = 6 };

/* The operand of the i-th: of the product. In casts all are in sequence. */
static int arg_of(int i)
{
    return i < COLUMN ? QUERN_ARG_A + i : QUERN_ARG_A_COLUMNWISE + i - COLUMN;
}

/* Does the product make A where no copy of it is seen? */
static int is_inline(const struct qn_job *job)
{
    const struct qn_kernel *kernel = qn_job_plan(job)->kernel;

    return kernel && qn_fuse_strategy(kernel) == QUERN_QUANTIZE_MAINLOOP;
}

void qn_made_hide(struct qn_job *job)
{
    for (int i = COLUMN; i < TENSORS && is_inline(job); i++)
        job->call.args.of[arg_of(i)].data = NULL;
}

/* ------------------------------------------------------------------- judge */

/* The job's values, and dbias as the job's was before the run that is
   judged. */
static int fill(void *user, const struct quern_operand *o, void *to,
                size_t bytes)
{
    static const float none[2] = {1, 1};
    const struct qn_job *job = user;
    float *sums = to;

    if (o->arg == QUERN_ARG_INPUT)
        memcpy(to, job->call.host[o->arg], bytes);
    else if (o->arg == QUERN_ARG_DBIAS)
        for (size_t i = 0; i < bytes / sizeof *sums; i++)
            sums[i] = QN_BACK_BEFORE;
    else
        return qn_copies_state(o, none, job->seed, to, bytes);
    return QUERN_OK;
}

/* The same by the host's own quantizer, from the job's values and sizes; and
   their sums, if runs make these. */
static int quantize(struct qn_job *job, struct qn_call *made)
{
    const struct qn_call_data data = {.sizes = job->sizes,
                                      .groups = job->problem.groups,
                                      .fill = fill,
                                      .user = job};
    struct qn_line line = {.kind = QN_LINE_CAST};
    struct qn_quantization *q = &line.of.cast;

    qn_scale_source(&job->problem, job->recipe, QN_ROLE_A, q);
    q->copies = QUERN_ROWWISE | QUERN_COLUMNWISE;
    q->dbias = qn_fuse_sums(&job->problem) ? job->problem.dbias : 0;
    return qn_call_line(made, job->call.ctx, &line, QUERN_BACKEND_HOST, &data);
}

/* Does the buffer hold just these bytes? */
static int compare(struct qn_memory *memory, const struct qn_memory *want,
                   int *alike)
{
    int same = 0, code = QUERN_OK;

    if (memory->bytes == want->bytes)
        code = qn_memory_same(memory, want, &same);
    *alike &= same;
    return code;
}

/* Is the buffer as it was before any run? Then the other's bytes go there. */
static int replace(struct qn_memory *memory, const struct qn_memory *want,
                   int *alike)
{
    unsigned char *bytes = malloc(memory->bytes + 1);
    int code = bytes ? qn_memory_read(memory, 0, bytes, memory->bytes)
                     : qn_error_memory();

    for (size_t i = 0; i < memory->bytes && !code; i++)
        *alike &= bytes[i] == QN_MEMORY_POISON;
    free(bytes);
    return code ? code : qn_memory_write(memory, 0, want->data, memory->bytes);
}

/* All tensors from `first` on, each with its own of the host's. */
static int judge(struct qn_job *job, int first,
                 int (*look)(struct qn_memory *, const struct qn_memory *,
                             int *),
                 int *alike)
{
    struct qn_call made = {.rows = 0};
    int code = quantize(job, &made);

    *alike = 1;
    for (int i = first; i < TENSORS && !code; i++)
        if (made.memory[QUERN_ARG_ROWWISE + i].base)
            code = look(&job->call.memory[arg_of(i)],
                        &made.memory[QUERN_ARG_ROWWISE + i], alike);
    if (!code && first == ROW && made.memory[QUERN_ARG_DBIAS].base)
        code = compare(&job->call.memory[QUERN_ARG_DBIAS],
                       &made.memory[QUERN_ARG_DBIAS], alike);
    qn_call_free(&made);
    return code;
}

int qn_made_judge(struct qn_job *job, int *alike)
{
    int (*const look)(struct qn_memory *, const struct qn_memory *, int *) =
        is_inline(job) ? replace : compare;

    return judge(job, ROW, look, alike);
}

int qn_made_columns(struct qn_job *job, int *alike)
{
    return judge(job, COLUMN, compare, alike);
}

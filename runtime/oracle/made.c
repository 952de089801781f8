/* SPDX-License-Identifier: Apache-2.0 */
/* made.c: jobs whose runs make the copies of A, from values. */
#include "oracle/made.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/backward.h"
#include "base/error.h"
#include "base/random.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/scale.h"
#include "quantize/quantize_plan.h"

/* The rowwise tensor is in A's buffer, the columnwise one after the roles. */
static void list_buffers(struct qn_job *job,
                         struct qn_memory *list[QN_MADE_BUFFERS])
{
    list[QN_MADE_ROW] = &job->memory[QN_ROLE_A];
    list[QN_MADE_ROW_SF] = &job->sf[QN_ROLE_A];
    list[QN_MADE_ROW_GLOBAL] = &job->global[QN_ROLE_A];
    list[QN_MADE_COLUMN] = &job->column;
    list[QN_MADE_COLUMN_SF] = &job->column_sf;
    list[QN_MADE_COLUMN_GLOBAL] = &job->column_global;
}

/* Does the product make A where no copy of it is seen? */
static int is_inline(const struct qn_job *job)
{
    return job->plan->kernel &&
           qn_fuse_strategy(job->plan->kernel) == QUERN_QUANTIZE_MAINLOOP;
}

/* Two fresh tensors, full of poison. */
static int make_buffers(const struct qn_tensor *row,
                        const struct qn_tensor *column, struct qn_gpu *gpu,
                        struct qn_memory *const list[QN_MADE_BUFFERS])
{
    const size_t bytes[QN_MADE_BUFFERS] = {
        row->bytes,    row->sf_bytes,    row->global_bytes,
        column->bytes, column->sf_bytes, column->global_bytes};
    int code = QUERN_OK;

    for (int i = 0; i < QN_MADE_BUFFERS && !code; i++)
        if (bytes[i] || i == QN_MADE_ROW || i == QN_MADE_COLUMN)
            code = qn_memory_new(list[i], gpu, bytes[i]);
    return code;
}

int qn_made_fill(struct qn_job *job, uint64_t seed, float scale)
{
    const struct qn_args *need = &job->need.args;
    struct qn_memory *list[QN_MADE_BUFFERS];
    int code;

    list_buffers(job, list);
    job->numbers = malloc(need->in.bytes + 1);
    if (!job->numbers)
        return qn_error_memory();
    if (qn_random_fill(job->numbers, need->in.type, need->in.bytes / 2, seed,
                       scale))
        return QUERN_EINVAL;
    code = make_buffers(&need->a, &need->column, job->gpu, list);
    if (!code)
        code = qn_memory_new(&job->in, job->gpu, need->in.bytes);
    return code ? code
                : qn_memory_write(&job->in, 0, job->numbers, need->in.bytes);
}

void qn_made_hide(struct qn_job *job)
{
    struct qn_tensor *column = &job->args.column;

    if (is_inline(job))
        column->data = column->sf = column->global = NULL;
}

/* ------------------------------------------------------------------- judge */

/* Room for dbias, as the job's was before the run that is judged. */
static float *make_sums(const struct qn_job *job)
{
    const size_t count = job->dbias.bytes / sizeof(float);
    float *sums = malloc((count + 1) * sizeof *sums);

    for (size_t i = 0; sums && i < count; i++)
        sums[i] = QN_BACK_BEFORE;
    return sums;
}

/* The same by the host's own quantizer, from the job's values and sizes; and
   their sums, if runs make these. */
static int quantize(const struct qn_job *job,
                    struct qn_memory made[QN_MADE_BUFFERS], float *sums)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct qn_memory *list[QN_MADE_BUFFERS];
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan = NULL;
    struct qn_quantization q;
    void *workspace = NULL;
    int code;

    for (int i = 0; i < QN_MADE_BUFFERS; i++)
        list[i] = &made[i];
    qn_scale_source(&job->problem, job->recipe, QN_ROLE_A, &q);
    q.copies = QUERN_ROWWISE | QUERN_COLUMNWISE;
    q.dbias = qn_fuse_sums(&job->problem) ? job->problem.dbias : 0;
    code = qn_quantize_needs(job->ctx, &q, &need);
    if (!code)
        code = qn_quantize_plan(job->ctx, &q, &host, &plan);
    if (!code)
        code = make_buffers(&need.args.row, &need.args.column, NULL, list);
    if (!code && !(workspace = calloc(1, need.workspace_bytes)))
        code = qn_error_memory();
    need.args.in.data = job->numbers;
    need.args.row.data = made[QN_MADE_ROW].data;
    need.args.row.sf = made[QN_MADE_ROW_SF].data;
    need.args.row.global = made[QN_MADE_ROW_GLOBAL].data;
    need.args.column.data = made[QN_MADE_COLUMN].data;
    need.args.column.sf = made[QN_MADE_COLUMN_SF].data;
    need.args.column.global = made[QN_MADE_COLUMN_GLOBAL].data;
    need.args.dbias = q.dbias ? sums : NULL;
    need.args.first_dims = job->sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.workspace = workspace;
    if (!code)
        code = qn_quantize_run(plan, &need.args, NULL);
    qn_quantize_plan_free(plan);
    free(workspace);
    return code;
}

/* Does the buffer hold just these bytes? */
static int compare(struct qn_memory *memory, const struct qn_memory *want,
                   int *alike)
{
    void *bytes = malloc(memory->bytes + 1);
    int code = bytes ? qn_memory_read(memory, 0, bytes, memory->bytes)
                     : qn_error_memory();

    if (!code)
        *alike &= memory->bytes == want->bytes &&
                  !memcmp(bytes, want->data, memory->bytes);
    free(bytes);
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

/* dbias, to the bit. */
static int look_at_sums(const struct qn_job *job, const float *sums, int *alike)
{
    void *found = malloc(job->dbias.bytes + 1);
    int code = found ? QUERN_OK : qn_error_memory();

    if (!code)
        code = qn_memory_read(&job->dbias, 0, found, job->dbias.bytes);
    if (!code)
        *alike &= !memcmp(found, sums, job->dbias.bytes);
    free(found);
    return code;
}

/* All buffers from `first` on, each with its own of the host's. */
static int judge(struct qn_job *job, int first,
                 int (*look)(struct qn_memory *, const struct qn_memory *,
                             int *),
                 int *alike)
{
    struct qn_memory made[QN_MADE_BUFFERS] = {{.gpu = NULL}},
                     *list[QN_MADE_BUFFERS];
    float *sums = make_sums(job);
    int code = sums ? quantize(job, made, sums) : qn_error_memory();

    *alike = 1;
    list_buffers(job, list);
    for (int i = first; i < QN_MADE_BUFFERS && !code; i++)
        if (made[i].base)
            code = look(list[i], &made[i], alike);
    if (!code && first == QN_MADE_ROW && qn_fuse_sums(&job->problem))
        code = look_at_sums(job, sums, alike);
    free(sums);
    for (int i = 0; i < QN_MADE_BUFFERS; i++)
        qn_memory_free(&made[i]);
    return code;
}

int qn_made_judge(struct qn_job *job, int *alike)
{
    int (*const look)(struct qn_memory *, const struct qn_memory *, int *) =
        is_inline(job) ? replace : compare;

    return judge(job, QN_MADE_ROW, look, alike);
}

int qn_made_columns(struct qn_job *job, int *alike)
{
    return judge(job, QN_MADE_COLUMN, compare, alike);
}

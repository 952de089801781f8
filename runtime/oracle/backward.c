/* SPDX-License-Identifier: Apache-2.0 */
/* backward.c: dbias and dprob of jobs that go back through an activation. */
#include "oracle/backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/geometry.h"

int qn_backward_begin(struct qn_job *job)
{
    const size_t count =
        job->call.memory[QUERN_ARG_DBIAS].bytes / sizeof(float);
    float *before = malloc((count + 1) * sizeof *before);
    int code = before ? QUERN_OK : qn_error_memory();

    for (size_t i = 0; before && i < count; i++)
        before[i] = QN_BACK_BEFORE;
    if (!code && count)
        code = qn_memory_write(&job->call.memory[QUERN_ARG_DBIAS], 0, before,
                               job->call.memory[QUERN_ARG_DBIAS].bytes);
    if (!code && job->call.memory[QUERN_ARG_DPROB].bytes)
        code = qn_memory_clear(&job->call.memory[QUERN_ARG_DPROB],
                               QN_MEMORY_POISON);
    free(before);
    return code;
}

/* Column j of a group's rows of D, in the order of a cast's dbias. */
static float sum_column(const struct qn_job *job, const void *d, int group,
                        int64_t j)
{
    const int64_t rows = job->sizes[group];
    float sum = 0, part = 0;

    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = qn_job_element(job, QN_ROLE_D, group, i, j);
        const float x = qn_element_load(d, job->problem.d_type, (size_t)at);

        part = i % 32 ? part + x : x;
        if (i % 32 == 31 || i == rows - 1)
            sum = i < 32 ? part : sum + part;
    }
    if (job->problem.dbias == QUERN_DBIAS_ADD)
        return rows ? QN_BACK_BEFORE + sum : QN_BACK_BEFORE;
    return sum;
}

static int judge_dbias(const struct qn_job *job, int *alike)
{
    const struct qn_geometry *all = &job->operands[QN_ROLE_D];
    const int64_t columns = all->columns;
    const size_t bytes = (size_t)(all->rows * columns) *
                         (size_t)qn_type_bits(job->problem.d_type) / 8;
    void *d = malloc(bytes + 1);
    float *found = malloc(job->call.memory[QUERN_ARG_DBIAS].bytes + 1);
    int code = d && found ? QUERN_OK : qn_error_memory();

    if (!code)
        code = qn_job_read(job, QN_ROLE_D, 0, d, bytes);
    if (!code)
        code = qn_memory_read(&job->call.memory[QUERN_ARG_DBIAS], 0, found,
                              job->call.memory[QUERN_ARG_DBIAS].bytes);
    for (int g = 0; g < job->problem.groups && !code; g++)
        for (int64_t j = 0; j < columns; j++)
            *alike &= found[g * columns + j] == sum_column(job, d, g, j);
    free(d);
    free(found);
    return code;
}

/* Rows after the last group are not written. */
static void look_outside(const struct qn_job *job, const float *dprob,
                         int *alike)
{
    const unsigned char *bytes = (const unsigned char *)(dprob + job->rows);

    for (size_t i = 0; i < (size_t)(job->problem.m - job->rows) * 4; i++)
        *alike &= bytes[i] == QN_MEMORY_POISON;
}

/* Terms of both signs are each as far off as D's sums are, so their remainder
   when they cancel out is no measure of the gap. */
static int judge_dprob(const struct qn_job *job, const struct qn_sample *s,
                       int *alike, double *error)
{
    double *reference = malloc((size_t)(s->count + 1) * 2 * sizeof *reference);
    float *found = malloc(job->call.memory[QUERN_ARG_DPROB].bytes + 1);
    double gaps = 0, norm = 0;
    int code = reference && found ? QUERN_OK : qn_error_memory();

    if (!code)
        code = qn_sample_dprob(job, s, reference, reference + s->count);
    if (!code)
        code = qn_memory_read(&job->call.memory[QUERN_ARG_DPROB], 0, found,
                              job->call.memory[QUERN_ARG_DPROB].bytes);
    for (int64_t i = 0; i < s->count && !code; i++) {
        const struct qn_sample_row *r = &s->rows[i];
        const double gap =
            (double)found[job->starts[r->group] + r->row] - reference[i];

        gaps += gap * gap;
        norm += fmax(reference[i] * reference[i], reference[s->count + i]);
    }
    if (!code)
        look_outside(job, found, alike);
    if (!code && !isnan(*error) &&
        !(sqrt(gaps / (norm > 0 ? norm : 1)) <= *error))
        *error = sqrt(gaps / (norm > 0 ? norm : 1));
    free(reference);
    free(found);
    return code;
}

int qn_backward_judge(const struct qn_job *job, const struct qn_sample *s,
                      int *alike, double *error)
{
    int code = job->problem.dbias ? judge_dbias(job, alike) : QUERN_OK;

    if (!code && job->problem.dprob)
        code = judge_dprob(job, s, alike, error);
    return code;
}

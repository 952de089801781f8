/* SPDX-License-Identifier: Apache-2.0 */
/*
** oracle.c: is a result right?
*/
#include "oracle/oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/adapted.h"
#include "oracle/backward.h"
#include "oracle/copies.h"
#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "oracle/made.h"
#include "oracle/sample.h"
#include "oracle/tolerance.h"
#include "oracle/twice.h"

static size_t element_bytes(const struct qn_job *job)
{
    return (size_t)qn_type_bits(job->problem.d_type) / 8;
}

static double distance(double difference, double norm)
{
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

/* The larger, where a NaN is larger than all. */
static double worse(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* Add a row's squares to its group's: the difference, and the reference.
   Returns the row's own error. */
static double add_row(const struct qn_job *job, const void *row,
                      const double *reference, int64_t n, double own[2])
{
    double difference = 0, norm = 0;

    for (int64_t j = 0; j < n; j++) {
        const double gap =
            (double)qn_element_load(row, job->problem.d_type, (size_t)j) -
            reference[j];
        difference += gap * gap;
        norm += reference[j] * reference[j];
    }
    own[0] += difference;
    own[1] += norm;
    return distance(difference, norm);
}

/* The error over all sampled rows; a NaN makes it NaN. The largest of a row,
   and the group with the largest error of its own. */
static int compare(const struct qn_job *job, const struct qn_sample *s,
                   const double *reference, double *error, double *most,
                   int *group)
{
    const size_t bytes = element_bytes(job);
    double difference = 0, norm = 0, worst = -1, own[2] = {0, 0};
    void *row = malloc((size_t)job->problem.n * 2 * bytes + 1); /* of D, too */
    int code = row ? QUERN_OK : qn_error_memory();

    for (int64_t i = 0; i < s->count && !code; i++) {
        const struct qn_sample_row *r = &s->rows[i];
        const int64_t n = qn_job_columns(job, s->role, r->group);
        const int64_t at = qn_job_element(job, s->role, r->group, r->row, 0);

        if (at >= 0)
            code = qn_job_read(job, s->role, (size_t)at * bytes, row,
                               (size_t)n * bytes);
        if (!code && at >= 0)
            *most = worse(add_row(job, row, reference + r->at, n, own), *most);
        if (i + 1 < s->count && r[1].group == r->group)
            continue;
        if (!isnan(worst) && !(distance(own[0], own[1]) <= worst)) {
            worst = distance(own[0], own[1]);
            *group = r->group;
        }
        difference += own[0];
        norm += own[1];
        own[0] = own[1] = 0;
    }
    free(row);
    *error = distance(difference, norm);
    return code;
}

/* Are bytes of D or P from `start` on as they were before the run, or zeros if
   the problem says so? */
static int look_at(const struct qn_job *job, int role, size_t start,
                   size_t count, int *untouched)
{
    const unsigned char *before = job->call.host[qn_job_arg(role)];
    unsigned char *data = malloc(count + 1);
    int code =
        data ? qn_job_read(job, role, start, data, count) : qn_error_memory();

    for (size_t i = 0; i < count && !code; i++)
        *untouched &= data[i] == (job->problem.outside ? 0
                                  : before             ? before[start + i]
                                                       : QN_MEMORY_POISON);
    free(data);
    return code;
}

/* Rows of D that no row of the product goes to. */
static int look_between(const struct qn_job *job, size_t row, int *untouched)
{
    char *written = calloc((size_t)job->problem.m + 1, 1);
    int code = written ? QUERN_OK : qn_error_memory();

    for (int64_t i = 0; i < job->rows && !code; i++) {
        const int64_t to = qn_job_place(job, i);

        if (to >= 0)
            written[to] = 1;
    }
    for (int64_t i = 0; i < job->problem.m && !code; i++)
        if (!written[i])
            code = look_at(job, QN_ROLE_D, row * (size_t)i, row, untouched);
    free(written);
    return code;
}

/* Bytes of no group: rows past the last one, or the ends of all rows if
   groups split these. */
static int look_outside(const struct qn_job *job, int role, int *untouched)
{
    const struct qn_geometry *g = &job->operands[role];
    const size_t row = (size_t)g->columns * element_bytes(job);
    const size_t used = (size_t)job->rows * element_bytes(job);
    int code = QUERN_OK;

    if (g->grouped)
        return QUERN_OK;
    if (job->problem.scatter)
        return look_between(job, row, untouched);
    if (!g->inner_ragged)
        return look_at(job, role, row * (size_t)job->rows,
                       row * (size_t)(g->rows - job->rows), untouched);
    for (int64_t i = 0; i < g->rows && row > used && !code; i++)
        code =
            look_at(job, role, (size_t)i * row + used, row - used, untouched);
    return code;
}

/* Bytes between rows of D or P. */
static int look_at_gaps(const struct qn_job *job, int role, int *untouched)
{
    const struct qn_geometry *g = &job->operands[role];
    const struct qn_memory *memory = &job->call.memory[qn_job_arg(role)];
    const int64_t stride = job->call.args.of[qn_job_arg(role)].stride;
    const size_t bytes = element_bytes(job);
    const size_t count = stride ? (size_t)(stride - g->columns) * bytes : 0;
    unsigned char *gap = malloc(count + 1);
    int code = gap ? QUERN_OK : qn_error_memory();

    for (int64_t row = 0; row + 1 < g->rows && count && !code; row++) {
        const size_t at = (size_t)(row * stride + g->columns) * bytes;

        code = qn_memory_read(memory, at, gap, count);
        for (size_t i = 0; i < count && !code; i++)
            *untouched &= gap[i] == QN_MEMORY_POISON;
    }
    free(gap);
    return code;
}

/* The sampled rows of D or P against the reference. */
static int judge_rows(struct qn_job *job, int role, enum qn_oracle oracle,
                      int64_t most, struct qn_verdict *verdict)
{
    double *reference = NULL, error = 0, missed[2] = {0, 0};
    struct qn_sample s;
    int group = 0, code = qn_sample_take(job, role, most, &s);

    if (!code &&
        !(reference = malloc((size_t)(s.elements + 1) * sizeof *reference)))
        code = qn_error_memory();
    if (!code)
        code = oracle == QN_ORACLE_HOST
                   ? qn_sample_host(job, &s, reference)
                   : qn_sample_float64(job, &s, missed, reference);
    if (!code)
        code = compare(job, &s, reference, &error, &verdict->row, &group);
    if (!isnan(verdict->error) && !(error <= verdict->error)) {
        verdict->error = error; /* a NaN stays */
        verdict->group = group;
    }
    verdict->rows = s.count;
    if (job->problem.lora && role == QN_ROLE_D)
        verdict->adapted =
            distance(missed[0], missed[1]) <=
            (job->operands[QN_ROLE_A].type == QUERN_F16 ? 6e-4 : 4e-3);
    if (!code && qn_geometry_backward(&job->problem))
        code = qn_backward_judge(job, &s, &verdict->sums, &verdict->error);
    free(reference);
    free(s.rows);
    return code;
}

/* The product's reference reads the copies, right or wrong. */
static int judge_copy(struct qn_job *job, int role, int *held)
{
    enum { LINES = 256 };
    int fine = 1, code = qn_copies_judge(job, role, LINES, &fine);

    *held &= fine;
    return code;
}

int qn_oracle_judge(struct qn_job *job, enum qn_oracle oracle, int64_t most,
                    struct qn_verdict *verdict)
{
    const struct qn_problem *p = &job->problem;
    struct qn_problem planned = *p;
    const int sums = qn_geometry_backward(p) || p->dbias;
    int code;

    planned.dequantize = qn_job_plan(job)->problem.dequantize;
    if (p->copies)
        return qn_twice_judge(job, oracle, most, verdict);
    code = sums ? qn_backward_begin(job) : QUERN_OK;
    if (!code && sums && !job->call.host[QUERN_ARG_D])
        code = qn_call_queue(&job->call);
    if (!code)
        code = qn_job_fresh(job);
    /* the host backend takes no single rows of these */
    if (qn_job_scaled(job) || p->bias || p->activation || p->lora)
        oracle = QN_ORACLE_FLOAT64;
    *verdict = (struct qn_verdict){
        .oracle = oracle == QN_ORACLE_HOST ? "host backend" : "float64",
        .tolerance = qn_tolerance_of(&planned, job->recipe, p->k).error,
        .untouched = 1,
        .copies = 1,
        .sums = 1,
        .held = 1,
        .adapted = 1,
    };
    if (!code && p->quantize) /* D's reference reads the rowwise tensor */
        code = qn_made_judge(job, &verdict->copies);
    for (int role = QN_ROLE_A; role <= QN_ROLE_B && !code; role++)
        code = judge_copy(job, role, &verdict->held);
    for (int role = QN_ROLE_D; role <= (p->saved ? QN_ROLE_P : QN_ROLE_D);
         role++) {
        if (!code)
            code = judge_rows(job, role, oracle, most, verdict);
        if (!code)
            code = look_outside(job, role, &verdict->untouched);
        if (!code)
            code = look_at_gaps(job, role, &verdict->untouched);
    }
    if (!code && p->lora)
        code = qn_adapted_outside(job, &verdict->untouched);
    if (!code)
        code = qn_call_guards(&job->call, &verdict->guards);
    verdict->passed = !code && verdict->error <= verdict->tolerance &&
                      verdict->guards && verdict->untouched &&
                      verdict->copies && verdict->sums && verdict->held &&
                      verdict->adapted;
    return code;
}

void qn_oracle_print(const struct qn_verdict *verdict, char *text, size_t size)
{
    char group[64] = "";

    if (!(verdict->error <= verdict->tolerance))
        snprintf(group, sizeof group, ", the largest in group %d",
                 verdict->group);
    snprintf(
        text, size,
        "%s: error %.2e (at most %.0e) against %s on %lld rows%s%s%s%s%s%s%s%s",
        verdict->passed ? "passed" : "FAILED", verdict->error,
        verdict->tolerance, verdict->oracle, (long long)verdict->rows, group,
        verdict->guards ? "" : "; bytes around a buffer were written",
        verdict->untouched
            ? ""
            : "; memory that belongs to no group or is between rows was "
              "written, or with outside=zero is not zero",
        verdict->differ ? "; the copies are others than of D in two steps" : "",
        verdict->sums ? ""
                      : "; dbias is not the sums of D, or dprob was "
                        "written outside of every group",
        verdict->copies ? "" : "; a copy differs from the host's",
        verdict->held
            ? ""
            : "; a copy, read as qn_problem_describe lays it out, is not "
              "the quantized values",
        verdict->adapted ? "" : "; lora_t is not the tokens times an adapter");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** job_time.c: the time of a job's runs, and its arithmetic and bytes.
*/
#include "oracle/job.h"

#include <math.h>
#include <string.h>

#include "base/types.h"
#include "oracle/timing.h"

enum { MOST_RUNS = QN_TIMING_MOST, BATCH = QN_TIMING_BATCH };

static int run_timed(void *call)
{
    return qn_call_queue(call);
}

static int time_runs(struct qn_job *job, double *seconds, int count,
                     struct qn_gpu_load *load)
{
    const struct qn_timed timed = {run_timed, &job->call, job->call.gpu};

    return qn_timing_runs(&timed, seconds, count, load);
}

/* Two launches of each, not counted; sets the longest time of one. */
static int warm_up(struct qn_job *const *jobs, int count, double *longest)
{
    int code = QUERN_OK;

    *longest = 0;
    for (int i = 0; i < count && !code; i++) {
        double seconds[2] = {0};
        struct qn_gpu_load load;

        code = time_runs(jobs[i], seconds, 2, &load);
        *longest = fmax(*longest, seconds[1]);
    }
    return code;
}

/* In turn, in alternating order: the later one finds a warmer chip. */
static int take_turns(struct qn_job *const *jobs, int count,
                      double (*seconds)[MOST_RUNS], int runs,
                      struct qn_job_time *times)
{
    const int eighth = runs / 8 < 4 ? 4 : runs / 8;
    const int batch = count == 1 || eighth > BATCH ? BATCH : eighth;
    int code = QUERN_OK;

    for (int i = 0; i < runs; i += batch)
        for (int turn = 0; turn < count && !code; turn++) {
            const int which = i / batch % 2 ? count - 1 - turn : turn;

            code = time_runs(jobs[which], seconds[which] + i,
                             runs - i < batch ? runs - i : batch,
                             &times[which].load);
        }
    return code;
}

int qn_job_compare(struct qn_job *const *jobs, int count, int runs,
                   struct qn_job_time *times)
{
    double seconds[QN_JOB_MOST][MOST_RUNS] = {{0}}, longest;
    int code = warm_up(jobs, count, &longest);

    memset(times, 0, (size_t)count * sizeof *times);
    runs = qn_timing_count(runs, longest);
    if (!code)
        code = take_turns(jobs, count, seconds, runs, times);
    for (int i = 0; i < count && !code; i++) {
        code = qn_call_check(&jobs[i]->call);
        qn_timing_sum(seconds[i], runs, &times[i]);
    }
    return code;
}

double qn_job_flops(const struct qn_job *job)
{
    const struct qn_problem *p = &job->problem;
    const double rows = (double)job->rows;

    switch (p->ragged) {
    case QUERN_AXIS_M:
        return 2 * rows * (double)p->n * (double)p->k;
    case QUERN_AXIS_N:
        return 2 * rows * (double)p->m * (double)p->k;
    case QUERN_AXIS_K:
        return 2 * rows * (double)p->m * (double)p->n;
    }
    return 2 * p->groups * (double)p->m * (double)p->n * (double)p->k;
}

/* Bytes outside every group do not count unless they are zeroed, nor does an
   operand's matrix of an empty group, unless it is written. */
double qn_job_bytes(const struct qn_job *job)
{
    double bytes = 0, used = 0;

    for (int i = 0; i < job->problem.groups; i++)
        used += job->sizes[i] > 0;
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        const struct qn_geometry *g = &job->operands[role];
        const double element = qn_type_bits(g->type) / 8.0;
        double parts = role >= QN_ROLE_D ? (double)g->groups : used;
        double rows = (double)g->rows, columns = (double)g->columns;

        if ((role == QN_ROLE_C && job->problem.beta == QUERN_BETA_ZERO) ||
            !qn_geometry_has(&job->problem, role))
            continue;
        if (!g->grouped)
            parts = 1;
        if (!g->grouped && !g->gathered &&
            (!job->problem.outside || role < QN_ROLE_D))
            *(g->inner_ragged ? &columns : &rows) = (double)job->rows;
        bytes += parts * rows * columns * element;
        if (g->sf.scaling)
            bytes += parts / (double)g->groups *
                     (rows / (double)(g->rows + !g->rows)) *
                     (columns / (double)(g->columns + !g->columns)) *
                     (double)job->call.memory[qn_job_arg(role) + 1].bytes;
    }
    return bytes;
}

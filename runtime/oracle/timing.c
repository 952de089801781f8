/* SPDX-License-Identifier: Apache-2.0 */
/* timing.c: how long launches take. */
#include "oracle/timing.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "internal.h"

enum { BATCH = QN_TIMING_BATCH };

/* Queue the launches back to back, an event between each two. */
static int queue(const struct qn_timed *timed, struct cu_event **events,
                 int count)
{
    struct qn_gpu *gpu = timed->gpu;
    int code = QUERN_OK;

    for (int i = 0; i <= count && !code; i++)
        code = QN_GPU(gpu, cuEventCreate, &events[i], 0);
    if (!code)
        code = QN_GPU(gpu, cuEventRecord, events[0], NULL);
    for (int i = 0; i < count && !code; i++) {
        code = timed->run(timed->user);
        if (!code)
            code = QN_GPU(gpu, cuEventRecord, events[i + 1], NULL);
    }
    return code;
}

/* At most BATCH launches; the load is read while they run. */
static int time_gpu(const struct qn_timed *timed, double *seconds, int count,
                    struct qn_gpu_load *load)
{
    struct qn_gpu *gpu = timed->gpu;
    struct cu_event *events[BATCH + 1] = {NULL};
    int code = queue(timed, events, count);

    if (!code)
        qn_gpu_load(gpu, load);
    if (!code)
        code = QN_GPU(gpu, cuEventSynchronize, events[count]);
    for (int i = 0; i < count && !code; i++) {
        float ms = 0;
        code =
            QN_GPU(gpu, cuEventElapsedTime_v2, &ms, events[i], events[i + 1]);
        seconds[i] = ms * 1e-3;
    }
    for (int i = 0; i <= count; i++)
        if (events[i])
            gpu->cuEventDestroy_v2(events[i]);
    return code;
}

/* The host backend runs at once, so wall time is its own. */
static int time_host(const struct qn_timed *timed, double *seconds, int count)
{
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++) {
        const double start = qn_clock_seconds();
        code = timed->run(timed->user);
        seconds[i] = qn_clock_seconds() - start;
    }
    return code;
}

int qn_timing_runs(const struct qn_timed *timed, double *seconds, int count,
                   struct qn_gpu_load *load)
{
    int code = QUERN_OK;

    if (!timed->gpu)
        return time_host(timed, seconds, count);
    for (int i = 0; i < count && !code; i += BATCH)
        code = time_gpu(timed, seconds + i,
                        count - i < BATCH ? count - i : BATCH, load);
    return code;
}

int qn_timing_count(int runs, double seconds)
{
    const int most = QN_TIMING_MOST;

    if (runs < 1)
        runs = seconds > 0 ? (int)fmin(most, 1 / seconds) : 100;
    return runs < 3 ? 3 : runs > most ? most : runs;
}

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void qn_timing_sort(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, compare_seconds);
}

void qn_timing_sum(double *seconds, int runs, struct qn_job_time *time)
{
    qn_timing_sort(seconds, runs);
    time->seconds = seconds[runs / 2];
    time->least = seconds[0];
    time->runs = runs;
}

int qn_timing_measure(const struct qn_timed *timed, int runs,
                      struct qn_job_time *time)
{
    double seconds[QN_TIMING_MOST];
    int code;

    *time = (struct qn_job_time){0};
    code = qn_timing_runs(timed, seconds, 2, &time->load);
    if (!code) {
        runs = qn_timing_count(runs, seconds[1]);
        code = qn_timing_runs(timed, seconds, runs, &time->load);
    }
    if (!code)
        qn_timing_sum(seconds, runs, time);
    return code;
}

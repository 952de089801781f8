/* SPDX-License-Identifier: Apache-2.0 */
/* tune_clock.c: the time that a measurement has, and who leaves the race. */
#include "tune/tune.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

double qn_tune_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int qn_tune_over(const struct qn_tune_job *job)
{
    return job->stopped || qn_tune_now() > job->deadline;
}

void qn_tune_out(struct qn_tune_runner *runner, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(runner->told->reason, sizeof runner->told->reason, format, list);
    va_end(list);
    runner->state = QN_TUNE_OUT;
    if (!runner->plan) /* a thread that compiles may only read */
        return;
    qn_plan_free(runner->plan);
    runner->plan = NULL;
}

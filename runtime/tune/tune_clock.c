/* SPDX-License-Identifier: Apache-2.0 */
/* tune_clock.c: the time that a measurement has, and who leaves the race. */
#include "tune/tune.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>

int qn_tune_over(const struct qn_tune_job *job)
{
    return job->stopped || qn_clock_seconds() > job->deadline;
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

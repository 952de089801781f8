/* SPDX-License-Identifier: Apache-2.0 */
/*
** overhead.h: what a program waits for in addition to the GPU: plans and
** launches.
*/
#ifndef QN_OVERHEAD_H
#define QN_OVERHEAD_H

#include "cli.h"

/*
** Add a row for each problem to `rows`, in seconds:
**
**   open   qn_open
**   cold   qn_plan of an empty cache: generator and compiler are opened;
**          cold_cpu is the same in time of a core, for machines that are busy
**   warm   qn_plan of a new context, from the cache
**   again  qn_plan of a context that has planned it before
**   run    qn_run
**   bare   cuLaunchKernelEx only, with the same parameters
**
** Where there are several, a last row has the time until all are planned, cold,
** by one thread for each core. Needs a GPU, or a driver that acts as one; its
** context is made before the clock starts. An exit status, after printing what
** was wrong.
*/
int qn_overhead_rows(const struct qn_options *, struct quern_context *,
                     const char *const *problems, int count, cJSON *rows);

extern const struct qn_column qn_overhead_columns[];

#endif

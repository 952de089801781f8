/* SPDX-License-Identifier: Apache-2.0 */
/*
** report.h: what a job showed, as a row for table.c.
*/
#ifndef QN_REPORT_H
#define QN_REPORT_H

#include "cli.h"
#include "oracle/job.h"
#include "oracle/oracle.h"

/* Rows with these keys; times are of one launch, in milliseconds. */
cJSON *qn_report_row(const struct qn_job *, const struct qn_job_time *,
                     const struct qn_verdict *);
extern const struct qn_column qn_report_columns[];

/* Add "sm_clock" and "watts", as far as they are known, after a prefix. */
void qn_report_load(cJSON *row, const char *prefix, const struct qn_gpu_load *);

/* Add what another job took for the same. `time` is the row's own. */
void qn_report_against(cJSON *row, const struct qn_job_time *time,
                       const struct qn_job *other,
                       const struct qn_job_time *other_time);
extern const struct qn_column qn_report_against_columns[];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h: dbias and dprob of jobs that go back through an activation. */
#pragma once

#include "oracle/job.h"
#include "oracle/sample.h"

/* Every element of dbias before the judged run. */
#define QN_BACK_BEFORE 1.5f

/* Before the run that is judged: dbias holds values that it may be added to,
   dprob poison. Codes of the library. */
int qn_backward_begin(struct qn_job *);

/* After it: `*alike` stays if dbias is, to the bit, the sums of D's rows, 32 of
   them at a time, and if no row outside of every group has a dprob. Those of
   the sampled rows are compared with sums in double: `*error` becomes |dprob -
   reference| / |reference| if that is larger. */
int qn_backward_judge(const struct qn_job *, const struct qn_sample *,
                      int *alike, double *error);

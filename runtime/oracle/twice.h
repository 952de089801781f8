/* SPDX-License-Identifier: Apache-2.0 */
/* twice.h: a result as copies, against the same in two steps. */
#pragma once

#include "oracle/oracle.h"

/* Delayed scaling with a factor that saturates nothing and is not 1, and its
   inverse. */
extern const float qn_twice_factors[2];

/* The same product without quantized results is run next to the job's and
   judged as any is; its D, quantized on the host, must be the job's tensors
   to the byte, including rows outside every group, which keep their poison.
   Codes of the library. */
int qn_twice_judge(struct qn_job *, enum qn_oracle, int64_t most,
                   struct qn_verdict *);

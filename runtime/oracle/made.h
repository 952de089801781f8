/* SPDX-License-Identifier: Apache-2.0 */
/* made.h: jobs whose runs make the copies of A, from values. */
#pragma once

#include "oracle/job.h"

/* Leave the columnwise tensor out of the job's arguments where the product
   quantizes in its mainloop, which makes none. */
void qn_made_hide(struct qn_job *);

/* `*alike` becomes 1 if the rowwise and the columnwise tensor hold, to the
   byte, the host's codes of the values, and nothing else. Quantized tensors
   that a product with quantize=mainloop does not need must be as they were, and
   the rowwise tensor is put there afterwards. Codes of the library. */
int qn_made_judge(struct qn_job *, int *alike);

/* The same of the columnwise tensor only, which a run was asked for. */
int qn_made_columns(struct qn_job *, int *alike);

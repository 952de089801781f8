/* SPDX-License-Identifier: Apache-2.0 */
/* gathered.h: indices of a job whose product gathers rows. */
#pragma once

#include "oracle/job.h"

/* Rows of A for all rows of the groups, in random order, and the buffer that
   runs read them from. Nothing if rows are read in order. */
int qn_gathered_fill(struct qn_job *, uint64_t seed);

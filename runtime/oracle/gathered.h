/* SPDX-License-Identifier: Apache-2.0 */
/* gathered.h: indices of a job whose product gathers rows. */
#pragma once

#include "oracle/job.h"

/* Rows of A for all rows of the groups, in random order: [m]. */
void qn_gathered_draw(const struct qn_job *, uint64_t seed, int *pairs);

/* Rows of D for those of a product that scatters: each another one. */
void qn_gathered_scatter(const struct qn_job *, uint64_t seed, int *rows);

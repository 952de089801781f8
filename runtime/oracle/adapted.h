/* SPDX-License-Identifier: Apache-2.0 */
/* adapted.h: products with low-rank adapters. */
#pragma once

#include "oracle/job.h"

/* Fill an adapter or its scale. As qn_random_fill. */
int qn_adapted_fill(const struct qn_job *, const struct quern_operand *,
                    void *to, size_t bytes);

/* The expected row of lora_t, from the `k` values of a group's row of A:
   [rank]. */
void qn_adapted_expect(const struct qn_job *, int group, const double *a,
                       int64_t k, double *t);

/* The same row as the run made it. QUERN_ECUDA. */
int qn_adapted_made(const struct qn_job *, int group, int64_t row, double *t);

/* The steps of k of an adapter that follow those of B: [rank]. */
void qn_adapted_column(const struct qn_job *, int group, int64_t column,
                       double *u);

/* Rows of lora_t outside every group keep their bytes. QUERN_ECUDA. */
int qn_adapted_outside(const struct qn_job *, int *untouched);

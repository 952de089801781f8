/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h: sampled rows of D, and their expected values. */
#pragma once

#include "oracle/job.h"

/* A row of D or P inside one group. */
struct qn_sample_row {
    int group;
    int64_t row;
    int64_t at; /* its first element among all sampled ones */
};

struct qn_sample {
    int role;                   /* QN_ROLE_D or QN_ROLE_P */
    struct qn_sample_row *rows; /* by group and row */
    int64_t count;
    int64_t elements;
};

/* At most `most` rows (0: as many as a few seconds allow), the same ones on
   every machine. Codes of the library; freed with free(sample->rows). */
int qn_sample_take(const struct qn_job *, int role, int64_t most,
                   struct qn_sample *);

/* Compute the expected rows, `sample->elements` values back to back: by the
   host backend (without bias, activation and adapters), or in double; with
   adapters from the run's lora_t, whose squared errors and values are added to
   `missed`. Codes of the library. */
int qn_sample_host(const struct qn_job *, const struct qn_sample *,
                   double *reference);
int qn_sample_float64(const struct qn_job *, const struct qn_sample *,
                      double missed[2], double *reference);

/* The same of dprob, one number for each of these rows of D, and the sum of
   the squares of the terms that it is a sum of. */
int qn_sample_dprob(const struct qn_job *, const struct qn_sample *,
                    double *reference, double *squares);

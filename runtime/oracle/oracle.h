/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h: is a result right? */
#pragma once

#include "oracle/job.h"

/* The expected D. */
enum qn_oracle {
    QN_ORACLE_HOST,   /* the host backend: sums in fp32, ascending k */
    QN_ORACLE_FLOAT64 /* sums in double, written here */
};

struct qn_verdict {
    const char *oracle; /* "host backend", "float64" */
    double error;       /* |d - reference| / |reference|; NaN never passes */
    double row;         /* the largest of a single row */
    double tolerance;
    int64_t rows;  /* compared: rows of D inside a group */
    int guards;    /* nothing was written around any buffer */
    int untouched; /* nor rows outside every group, nor between rows */
    int differ;    /* copies of D are others than those of it in two steps */
    int copies;    /* those that the run made are the host's, to the byte */
    int held;      /* A and B are the values that they were quantized from */
    int sums;      /* dbias is that of D's rows, to the bit */
    int adapted;   /* lora_t is the tokens times an adapter */
    int group;     /* whose rows are furthest away */
    int passed;
};

/* Compare D after a run on at most `most` rows (0: as many as a few seconds
   allow): the first and last of each group, and rows drawn from the rest. A D
   that is added to is computed once more, from its old content. Codes of the
   library. */
int qn_oracle_judge(struct qn_job *, enum qn_oracle, int64_t most,
                    struct qn_verdict *);

/* One sentence, e.g. "passed: error 1.2e-03 (at most 4e-03) on 128 rows". */
void qn_oracle_print(const struct qn_verdict *, char *text, size_t size);

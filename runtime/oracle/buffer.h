/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.h: the buffers of a job, in one table. */
#pragma once

#include "oracle/job.h"

struct qn_buffer {
    int arg;     /* enum quern_arg: the operand that runs find there */
    size_t at;   /* of its struct qn_memory, in struct qn_job */
    size_t skip; /* bytes before it */
    int own;     /* 1: a job beside another one has its own */
};

extern const struct qn_buffer qn_buffer_list[];
extern const int qn_buffer_count;

struct qn_memory *qn_buffer_of(struct qn_job *, const struct qn_buffer *);

/* Put the address of each operand of the job's line into its arguments. Codes
   of the library. */
int qn_buffer_point(struct qn_job *);

/* All that is not a job's own, from another one. */
void qn_buffer_borrow(struct qn_job *, const struct qn_job *from);

/* Free all buffers that are not borrowed. */
void qn_buffer_free(struct qn_job *);

/* Sets `*intact` to 1 if nothing was written around any of them. */
int qn_buffer_guards(const struct qn_job *, int *intact);

/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_room.h: the layout of the workspace of the backend cublaslt. */
#pragma once

#include "internal.h"

struct qn_geometry;

enum {
    QN_CUBLASLT_ROW_BYTES = 16, /* of zeros, and the multiple of FP8 rows */
    QN_CUBLASLT_ROWS = 4 /* that scales of blocks are given for at once */
};

/*
** From the first byte:
**
**     256          the error record, which this backend does not touch
**     256          1.0f and 0.0f, written by runs that need them
**     zeros        written by runs that need them
**     arrays       of the groups in one call
**     scales       scales of blocks of rows, gathered by group
**     and from a multiple of 256 on for each lane
**       scratch    cuBLASLt's
**       rows       of A, and of D: a group's last ones, fewer than 4
*/
struct qn_cublaslt_room {
    size_t zeros, arrays, scales; /* offsets */
    size_t lanes;                 /* the same, before it is aligned */
    size_t zeros_bytes;
    size_t a_rows, d_rows, lane_bytes; /* offsets within a lane, and its size */
    size_t bytes;                      /* of all */
};

/* Are the groups' scales of A only along k separated from each other? */
int qn_cublaslt_gathers(const struct qn_geometry *a);

/* A tensor that is summed: its rows end with zeros. */
int64_t qn_cublaslt_row(int64_t k);

void qn_cublaslt_room(const struct qn_problem *problem,
                      const struct qn_geometry *a, int grouped, int lanes,
                      struct qn_cublaslt_room *room);

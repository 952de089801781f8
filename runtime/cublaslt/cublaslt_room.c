/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_room.c: the layout of the workspace of the backend cublaslt. */
#include "cublaslt/cublaslt_room.h"
#include "base/types.h"
#include "cublaslt/cublaslt_product.h"
#include "problem/geometry.h"
#include "problem/problem.h"

enum { CONSTANTS = 256, BLOCK = 128 };

/* Both operands of beta C for an empty sum, which share their zeros. */
static size_t zeros_bytes(const struct qn_problem *p)
{
    int64_t longer = p->m > p->n ? p->m : p->n;

    if (p->ragged != QUERN_AXIS_K || p->beta != QUERN_BETA_ANY)
        return 0;
    return (size_t)longer * QN_CUBLASLT_ROW_BYTES;
}

int qn_cublaslt_gathers(const struct qn_geometry *a)
{
    const struct qn_scaling *s = a->sf.scaling;

    return s && s->span == QN_SPAN_BLOCK && s->order == QN_ORDER_COLUMNS &&
           a->sf.copy == QUERN_ROWWISE;
}

int64_t qn_cublaslt_row(int64_t k)
{
    return (k + QN_CUBLASLT_ROW_BYTES - 1) / QN_CUBLASLT_ROW_BYTES *
           QN_CUBLASLT_ROW_BYTES;
}

/* Each group's rows are rounded up. */
static size_t scales_bytes(const struct qn_problem *p)
{
    const int64_t rows = p->m + (QN_CUBLASLT_ROWS - 1) * (int64_t)p->groups;

    return (size_t)((p->k + BLOCK - 1) / BLOCK * rows) * sizeof(float);
}

void qn_cublaslt_room(const struct qn_problem *p, const struct qn_geometry *a,
                      int grouped, int lanes, struct qn_cublaslt_room *room)
{
    const int gathers = qn_cublaslt_gathers(a);
    const size_t rows = gathers ? QN_CUBLASLT_ROWS : 0;
    const size_t groups = grouped ? (size_t)p->groups : 0;
    size_t at = QN_WORKSPACE_BYTES + CONSTANTS;

    room->zeros_bytes = zeros_bytes(p);
    room->zeros = qn_space_add(&at, room->zeros_bytes);
    room->arrays = qn_space_add(&at, groups * QN_CUBLASLT_GROUP_BYTES);
    room->scales = qn_space_add(&at, gathers ? scales_bytes(p) : 0);
    room->lanes = at;
    at = QN_CUBLASLT_SCRATCH;
    room->a_rows = qn_space_add(&at, rows * (size_t)qn_cublaslt_row(p->k));
    room->d_rows = qn_space_add(&at, rows * (size_t)p->n *
                                         (size_t)qn_type_bits(p->d_type) / 8);
    room->lane_bytes = at;
    room->bytes =
        room->lanes + QN_CUBLASLT_ALIGNMENT + (size_t)lanes * room->lane_bytes;
}

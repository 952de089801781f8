/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_room.c: what is where in the workspace of the backend cublaslt. */
#include "cublaslt/cublaslt_room.h"
#include "base/types.h"
#include "cublaslt/cublaslt_product.h"
#include "problem/geometry.h"

enum { CONSTANTS = QN_WORKSPACE_BYTES, ZEROS = CONSTANTS + 256, BLOCK = 128 };

static size_t round_up(size_t value)
{
    return (value + QN_CUBLASLT_ALIGNMENT - 1) &
           ~(size_t)(QN_CUBLASLT_ALIGNMENT - 1);
}

/* Both operands of beta C for an empty sum, which share their zeros. */
static size_t zeros_bytes(const struct quern_problem *p)
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
static size_t scales_bytes(const struct quern_problem *p)
{
    const int64_t rows = p->m + (QN_CUBLASLT_ROWS - 1) * (int64_t)p->groups;

    return (size_t)((p->k + BLOCK - 1) / BLOCK * rows) * sizeof(float);
}

void qn_cublaslt_room(const struct quern_problem *p,
                      const struct qn_geometry *a, int grouped, int lanes,
                      struct qn_cublaslt_room *room)
{
    const int gathers = qn_cublaslt_gathers(a);
    const size_t rows = gathers ? QN_CUBLASLT_ROWS : 0;
    const size_t groups = grouped ? (size_t)p->groups : 0;

    room->zeros = ZEROS;
    room->zeros_bytes = zeros_bytes(p);
    room->arrays = room->zeros + round_up(room->zeros_bytes);
    room->scales = room->arrays + round_up(groups * QN_CUBLASLT_GROUP_BYTES);
    room->lanes = room->scales + (gathers ? round_up(scales_bytes(p)) : 0);
    room->a_rows = QN_CUBLASLT_SCRATCH;
    room->d_rows =
        room->a_rows + round_up(rows * (size_t)qn_cublaslt_row(p->k));
    room->lane_bytes =
        room->d_rows +
        round_up(rows * (size_t)p->n * (size_t)qn_type_bits(p->d_type) / 8);
    room->bytes =
        room->lanes + QN_CUBLASLT_ALIGNMENT + (size_t)lanes * room->lane_bytes;
}

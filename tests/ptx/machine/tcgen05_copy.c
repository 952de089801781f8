/* SPDX-License-Identifier: Apache-2.0 */
/* tcgen05_copy.c: copies of shared memory to tensor memory, 16 bytes to four
   columns of a lane. */
#include "build.h"
#include "hazard.h"
#include "matrix.h"
#include "tensor.h"

#include <string.h>

/* Rows, units of 16 bytes of each; for each part of the lanes, which 32 rows
   come there. */
static const struct shape {
    const char *name;
    int rows, units, from[PX_PARTS];
} shapes[] = {
    {"128x256b", 128, 2, {0, 1, 2, 3}},
    {"128x128b", 128, 1, {0, 1, 2, 3}},
    {"64x128b.warpx2::02_13", 64, 1, {0, 1, 0, 1}},
    {"64x128b.warpx2::01_23", 64, 1, {0, 0, 1, 1}},
    {"32x128b.warpx4", 32, 1, {0, 0, 0, 0}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct copy {
    const struct shape *shape;
    struct px_matrix from;
    uint32_t column;
    int ctas;
};

static void move(struct px_cta *cta, const struct copy *c)
{
    const int parts = px_misreads(PX_ONE_PART) ? 1 : PX_PARTS;

    for (int lane = 0; lane < 32 * parts; lane++)
        for (int y = 0; y < c->shape->units; y++) {
            const int row = 32 * c->shape->from[lane / 32] + lane % 32;
            const unsigned char *from =
                cta->shared + px_matrix_unit(&c->from, row, y);

            for (int i = 0; i < 4; i++)
                memcpy(
                    &cta->tmem->word[c->column + (uint32_t)(4 * y + i)][lane],
                    from + 4 * i, 4);
        }
}

static int land(struct px_async *async)
{
    const struct copy *c = async->work;
    struct px_warp *w = async->warp;

    for (int k = 0; k < c->ctas; k++) {
        struct px_cta *cta = &w->cta->cluster->cta[w->cta->rank + k];

        if (!cta->live_warps)
            return px_fault(w, async->op, async->lane,
                            "a CTA of the pair has ended");
        for (int row = 0; row < c->shape->rows; row++)
            for (int y = 0; y < c->shape->units; y++)
                if (px_hazard_unit_read(async, cta,
                                        px_matrix_unit(&c->from, row, y)))
                    return PX_FAULT;
        move(cta, c);
    }
    return PX_NEXT;
}

static int issue_lane(struct px_warp *w, const struct px_op *op, int lane)
{
    const uint32_t to = PX_AT(w, uint32_t, 0)[lane] + (uint32_t)op->offset;
    struct px_async *async =
        px_tensor_issue(w, op, lane, land, sizeof(struct copy));
    struct copy *c = async ? async->work : NULL;

    if (!async)
        return PX_FAULT;
    c->shape = &shapes[op->sub];
    c->column = px_column_of(to);
    c->ctas = px_machine.launch->program->tensor;
    if (px_row_of(to))
        return px_fault(w, op, lane, "begins in lane %u", px_row_of(to));
    if (px_tensor_matrix(w, op, lane, PX_AT(w, uint64_t, 1)[lane], &c->from))
        return PX_FAULT;
    px_tensor_count(w, lane);
    for (int i = 0; i < c->ctas; i++) {
        const struct px_units units = {0, c->shape->rows, c->shape->units, 16};
        struct px_cta *cta = px_tensor_cta(w, op, lane, c->ctas, i);

        if (!cta || px_matrix_issued(w, op, lane, cta, &c->from, units) ||
            px_tmem_will_write(w, op, lane, cta, c->column,
                               4 * (uint32_t)c->shape->units))
            return PX_FAULT;
    }
    return PX_NEXT;
}

/* [to], descriptor */
static int issue(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask)
        if (issue_lane(w, op, i))
            return PX_FAULT;
    return PX_NEXT;
}

int px_setup_tensor_copy(struct px_build *b, const char *rest)
{
    for (int k = 0; k < SHAPES; k++) {
        if (strcmp(rest, shapes[k].name))
            continue;
        b->op->run = issue;
        b->op->sub = (short)k;
        return px_give(b, 0, 'r') || px_give(b, 1, 'd') ? PX_FAULT : PX_EXIT;
    }
    return PX_NEXT;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** tmem.c: tensor memory: who has which columns, who reads and writes them.
**
** Loads and stores act at once, but their warp may use the registers only after
** tcgen05.wait, and others' accesses of the same columns must be ordered by
** barriers between the fences of tcgen05. So no order in which a GPU may do
** them gives other values.
*/
#include "build.h"
#include "hazard.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------- memory */

int px_tmem_cta(struct px_cta *cta)
{
    cta->tmem = calloc(1, sizeof *cta->tmem);
    if (!cta->tmem)
        return px_fault_plain("out of memory");
    cta->tmem->read =
        calloc((size_t)(PX_COLUMNS * cta->nwarps), sizeof *cta->tmem->read);
    return cta->tmem->read ? PX_NEXT : px_fault_plain("out of memory");
}

void px_tmem_cta_end(struct px_cta *cta)
{
    if (cta->tmem)
        free(cta->tmem->read);
    free(cta->tmem);
}

int px_tmem_warp(struct px_warp *w)
{
    w->tensor = calloc(1, sizeof *w->tensor);
    return w->tensor ? px_order_warp(w) : px_fault_plain("out of memory");
}

void px_tmem_warp_end(struct px_warp *w)
{
    if (w->tensor)
        px_order_warp_end(w);
    free(w->tensor);
}

/* ----------------------------------------------------------------- columns */

static int check_taken(struct px_warp *w, const struct px_op *op, int lane,
                       const struct px_cta *cta, uint32_t column,
                       uint32_t columns)
{
    for (uint32_t i = column; i < column + columns; i++)
        if (i >= PX_COLUMNS || !cta->tmem->taken[i])
            return px_fault(w, op, lane,
                            "columns %u to %u of tensor memory: column %u of "
                            "CTA rank %d is not allocated",
                            column, column + columns - 1, i, cta->rank);
    return PX_NEXT;
}

/* The message names the other warp. */
static int fault_early(struct px_warp *w, const struct px_op *op, int lane,
                       struct px_access by, uint32_t column)
{
    const uint32_t warp = by.count / 2 % (uint32_t)w->cta->nwarps;
    const uint32_t rank = by.count / 2 / (uint32_t)w->cta->nwarps;

    if (by.count % 2 == PX_ISSUED)
        return px_fault(
            w, op, lane,
            "column %u of tensor memory: warp %u of CTA rank %u "
            "issued a product or a copy that uses it; of its end this "
            "warp does not know (commit, a wait for its barrier, "
            "tcgen05.fence::after_thread_sync)",
            column, warp, rank);
    return px_fault(w, op, lane,
                    "column %u of tensor memory: warp %u of CTA rank %u loads "
                    "or stores it; of its end this warp does not know "
                    "(tcgen05.wait, tcgen05.fence::before_thread_sync, a "
                    "barrier, tcgen05.fence::after_thread_sync)",
                    column, warp, rank);
}

/* A warp knows of its own loads and stores once it has waited, of its own
   products never without a commit. */
static int is_over(const struct px_warp *w, struct px_access by)
{
    const struct px_tensor *t = w->tensor;

    if (!by.number)
        return 1;
    if (by.count == px_order_count(w, PX_OWN))
        return (!t->open_load || by.number < t->open_load) &&
               (!t->open_store || by.number < t->open_store);
    return px_order_is_ready(w, by.count, by.number);
}

/* The first product or copy of the warp without a commit that another thread
   issued. */
static uint32_t first_of_others(const struct px_warp *w, int lane)
{
    const struct px_tensor *t = w->tensor;
    uint32_t first = UINT32_MAX;

    for (int i = 0; i < PX_LANES; i++)
        if (i != lane && t->open[i] && t->open[i] < first)
            first = t->open[i];
    return first;
}

/* Those of one warp's products and copies that come in order need no more;
   `others` is the first of other threads. */
static int is_before(const struct px_warp *w, struct px_access by,
                     uint32_t others)
{
    if (is_over(w, by))
        return 1;
    return by.count == px_order_count(w, PX_ISSUED) && by.number < others;
}

static int is_same(struct px_access a, struct px_access b)
{
    return a.count == b.count && a.number == b.number;
}

int px_tmem_will_read(struct px_warp *w, const struct px_op *op, int lane,
                      struct px_cta *cta, uint32_t column, uint32_t columns,
                      const char *what)
{
    const uint32_t others = first_of_others(w, lane);
    struct px_tmem *t = cta->tmem;
    struct px_access known = {0}; /* most columns were written together */

    if (check_taken(w, op, lane, cta, column, columns))
        return PX_FAULT;
    for (uint32_t i = column; i < column + columns; i++)
        for (int part = 0; part < PX_PARTS; part++) {
            const struct px_access by = t->written[i][part];

            if (!by.number)
                return px_fault(w, op, lane,
                                "column %u of tensor memory, %s, was never "
                                "written in lanes %d to %d",
                                i, what, 32 * part, 32 * part + 31);
            if (!is_same(by, known) && !is_before(w, by, others))
                return fault_early(w, op, lane, by, i);
            known = by;
        }
    return PX_NEXT;
}

void px_tmem_used(struct px_warp *w, struct px_cta *cta, uint32_t column,
                  uint32_t columns)
{
    for (uint32_t i = column; i < column + columns; i++)
        cta->tmem->used[i] = (struct px_access){px_order_count(w, PX_ISSUED),
                                                w->tensor->products};
}

/* All warps' loads of a column, which then count no more. */
static int check_loads(struct px_warp *w, const struct px_op *op, int lane,
                       struct px_cta *cta, uint32_t column)
{
    struct px_access *read = &cta->tmem->read[column * (uint32_t)cta->nwarps];

    for (int k = 0; k < cta->nwarps; k++) {
        if (!is_over(w, read[k]))
            return fault_early(w, op, lane, read[k], column);
        read[k].number = 0;
    }
    return PX_NEXT;
}

int px_tmem_will_write(struct px_warp *w, const struct px_op *op, int lane,
                       struct px_cta *cta, uint32_t column, uint32_t columns)
{
    const uint32_t others = first_of_others(w, lane);
    const struct px_access by = {px_order_count(w, PX_ISSUED),
                                 w->tensor->products};
    struct px_tmem *t = cta->tmem;
    struct px_access known = {0}; /* most columns were written together */

    if (check_taken(w, op, lane, cta, column, columns))
        return PX_FAULT;
    for (uint32_t i = column; i < column + columns; i++) {
        if (check_loads(w, op, lane, cta, i))
            return PX_FAULT;
        if (t->used[i].number && !is_before(w, t->used[i], others))
            return fault_early(w, op, lane, t->used[i], i);
        for (int part = 0; part < PX_PARTS; part++) {
            const struct px_access last = t->written[i][part];

            if (!is_same(last, known) && !is_before(w, last, others))
                return fault_early(w, op, lane, last, i);
            known = last;
            t->written[i][part] = by;
        }
    }
    return PX_NEXT;
}

/* --------------------------------------------------------- loads and stores */

/* Register r of thread i: a place among 16 or 32 lanes, and a column. */
enum { SHAPE_32X32, SHAPE_16X256, SHAPE_16X128, SHAPES };
static const struct shape {
    const char *name;
    int registers, columns, lanes; /* of x1 */
} shapes[SHAPES] = {
    {"32x32b", 1, 1, 32}, {"16x256b", 4, 8, 16}, {"16x128b", 2, 4, 16}};

static void place_of(int shape, int r, int i, uint32_t *row, uint32_t *column)
{
    if (px_misreads(PX_FRAGMENT) && shape != SHAPE_32X32 && (r ^ r >> 1) & 1)
        r ^= 3;
    switch (shape) {
    case SHAPE_32X32:
        *row = (uint32_t)i;
        *column = (uint32_t)r;
        break;
    case SHAPE_16X256:
        *row = (uint32_t)(i / 4 + r / 2 % 2 * 8);
        *column = (uint32_t)(r / 4 * 8 + i % 4 * 2 + r % 2);
        break;
    default:
        *row = (uint32_t)(i / 4 + r % 2 * 8);
        *column = (uint32_t)(r / 2 * 4 + i % 4);
        break;
    }
}

/* The warp's part of the lanes, whether the address names it or not; -1 after
   a fault. */
static int first_row(struct px_warp *w, const struct px_op *op,
                     uint32_t address)
{
    const uint32_t part = (uint32_t)w->number % PX_PARTS;
    const uint32_t row = px_row_of(address);
    const uint32_t within = row % 32;

    if (row >= PX_ROWS || (row / 32 && row / 32 != part) ||
        (within && (within != 16 || shapes[op->sub].lanes != 16))) {
        px_fault(w, op, 0,
                 "lane %u of tensor memory; the warp has lanes %u to %u", row,
                 32 * part, 32 * part + 31);
        return -1;
    }
    return (int)(32 * (px_misreads(PX_ALL_ROWS) ? 0 : part) + within);
}

/* The address is the same in all lanes. */
static int address_of(struct px_warp *w, const struct px_op *op, int arg,
                      uint32_t *out)
{
    const uint32_t *given = PX_AT(w, uint32_t, arg);

    for (int i = 1; i < PX_LANES; i++)
        if (given[i] != given[0])
            return px_fault(w, op, i, "another address than lane 0's");
    *out = given[0] + (uint32_t)op->offset;
    return PX_NEXT;
}

static uint32_t columns_of(const struct px_op *op)
{
    const struct shape *s = &shapes[op->sub];

    return (uint32_t)(op->vector / s->registers * s->columns);
}

/* The column and the row where the warp's next access begins, from the operand
   `arg`. Columns that are not taken are a fault. */
static int begin_access(struct px_warp *w, const struct px_op *op, int arg,
                        uint32_t *first, int *row)
{
    uint32_t address = 0;

    if (address_of(w, op, arg, &address))
        return PX_FAULT;
    *first = px_column_of(address);
    *row = first_row(w, op, address);
    if (*row < 0 || check_taken(w, op, 0, w->cta, *first, columns_of(op)))
        return PX_FAULT;
    w->tensor->accesses++;
    return PX_NEXT;
}

/* tcgen05.ld.sync.aligned.32x32b.x8.b32 {..}, [address] */
static int load(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    struct px_tensor *own = w->tensor;
    struct px_tmem *t = w->cta->tmem;
    uint32_t first = 0;
    int row = 0;

    (void)mask;
    if (begin_access(w, op, op->vector, &first, &row))
        return PX_FAULT;
    own->open_load = own->open_load ? own->open_load : own->accesses;
    for (uint32_t i = first; i < first + columns_of(op); i++) {
        const struct px_access by = t->written[i][row / 32];

        if (!is_over(w, by))
            return fault_early(w, op, 0, by, i);
        t->read[i * (uint32_t)w->cta->nwarps + (uint32_t)w->number] =
            (struct px_access){px_order_count(w, PX_OWN), own->accesses};
    }
    for (int r = 0; r < op->vector; r++) {
        uint32_t *to = PX_AT(w, uint32_t, r);

        for (int i = 0; i < PX_LANES; i++) {
            uint32_t y, x;

            place_of(op->sub, r, i, &y, &x);
            to[i] = t->word[first + x][(uint32_t)row + y];
        }
    }
    px_hazard_loaded(w, op, op->vector);
    return PX_NEXT;
}

/* Do other warps still use the column, or products? */
static int check_store(struct px_warp *w, const struct px_op *op,
                       uint32_t column, int part)
{
    const struct px_tmem *t = w->cta->tmem;
    const struct px_access by = t->written[column][part];

    if (!is_over(w, by))
        return fault_early(w, op, 0, by, column);
    if (!is_over(w, t->used[column]))
        return fault_early(w, op, 0, t->used[column], column);
    for (int k = part; k < w->cta->nwarps; k += PX_PARTS) {
        const struct px_access read =
            t->read[column * (uint32_t)w->cta->nwarps + (uint32_t)k];

        if (!is_over(w, read))
            return fault_early(w, op, 0, read, column);
    }
    return PX_NEXT;
}

/* tcgen05.st.sync.aligned.32x32b.x8.b32 [address], {..} */
static int store(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    struct px_tensor *own = w->tensor;
    struct px_tmem *t = w->cta->tmem;
    uint32_t first = 0;
    int row = 0;

    (void)mask;
    if (begin_access(w, op, 0, &first, &row))
        return PX_FAULT;
    for (uint32_t i = first; i < first + columns_of(op); i++) {
        if (check_store(w, op, i, row / 32))
            return PX_FAULT;
        t->written[i][row / 32] =
            (struct px_access){px_order_count(w, PX_OWN), own->accesses};
    }
    own->open_store = own->open_store ? own->open_store : own->accesses;
    for (int r = 0; r < op->vector; r++)
        for (int i = 0; i < PX_LANES; i++) {
            uint32_t y, x;

            place_of(op->sub, r, i, &y, &x);
            t->word[first + x][(uint32_t)row + y] =
                PX_AT(w, uint32_t, r + 1)[i];
        }
    return PX_NEXT;
}

/* 32x32b.x8.b32, after tcgen05.ld.sync.aligned. or st */
int px_setup_tensor_access(struct px_build *b, const char *rest, int stores)
{
    struct px_op *op = b->op;
    char name[20], end[8];
    int n;

    if (sscanf(rest, "%19[^.].x%d.%7s", name, &n, end) != 3 ||
        strcmp(end, "b32"))
        return PX_NEXT;
    for (int k = 0; k < SHAPES; k++) {
        if (strcmp(shapes[k].name, name))
            continue;
        op->run = stores ? store : load;
        op->meet = PX_MEET_ALL;
        op->sub = (short)k;
        op->vector = (short)(n * shapes[k].registers);
        if (n < 1 || op->vector > 128 || n & (n - 1) ||
            b->noperands != op->vector + 1)
            return px_bad(b, "has another count of registers");
        for (int i = 0; i < b->noperands; i++)
            if (px_give(b, i, 'r'))
                return PX_FAULT;
        return PX_EXIT;
    }
    return PX_NEXT;
}

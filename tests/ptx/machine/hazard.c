/* SPDX-License-Identifier: Apache-2.0 */
/*
** hazard.c: races that results show only by chance: memory that the async
** proxy reads without a fence after the write, memory that changes while a copy
** or a product still reads it, registers of a product before its wait.
*/
#include "hazard.h"

#include <stdlib.h>
#include <string.h>

int px_hazard_cta(struct px_cta *cta)
{
    cta->units = calloc(cta->shared_bytes / PX_UNIT + 1, sizeof *cta->units);
    return cta->units ? PX_NEXT : px_fault_plain("out of memory");
}

static void note(struct px_cta *cta, uint32_t at, uint32_t bytes, int warp,
                 int lane)
{
    for (uint32_t i = at / PX_UNIT; i <= (at + bytes - 1) / PX_UNIT; i++)
        cta->units[i] =
            (struct px_unit){px_machine.clock, (uint16_t)warp, (uint8_t)lane};
}

void px_hazard_written(struct px_warp *w, const unsigned char *at,
                       uint32_t bytes, int lane)
{
    const uint64_t offset = (uintptr_t)at - (uintptr_t)w->cta->shared;

    if (offset < w->cta->shared_bytes)
        note(w->cta, (uint32_t)offset, bytes, w->number, lane);
}

void px_hazard_copied(struct px_cta *cta, uint32_t at, uint32_t bytes)
{
    px_machine.clock++;
    note(cta, at, bytes, PX_BY_COPY, 0);
}

/* Does the lane know that a write is visible to the async proxy? A fence of
   its own does, or one of the writer's, of whose end a lane of the same warp
   hears where all meet. */
static int is_fenced(const struct px_warp *w, int lane,
                     const struct px_cta *cta, const struct px_unit *unit)
{
    const struct px_warp *writer = &cta->warps[unit->warp];
    const uint64_t fence = writer->fenced[unit->lane];

    return (writer != w || unit->lane == lane)
               ? unit->when <= w->fenced[lane] || unit->when <= fence
               : (unit->when <= w->met && w->met <= w->fenced[lane]) ||
                     unit->when <= w->known[unit->lane];
}

int px_hazard_issued(struct px_warp *w, const struct px_op *op, int lane,
                     const struct px_cta *cta, uint32_t at, uint32_t bytes)
{
    for (uint32_t i = at / PX_UNIT; i <= (at + bytes - 1) / PX_UNIT; i++) {
        const struct px_unit *unit = &cta->units[i];

        if (unit->warp == PX_BY_COPY || is_fenced(w, lane, cta, unit))
            continue;
        return px_fault(w, op, lane,
                        "reads shared address %u, which lane %d of warp %d "
                        "wrote, without a fence.proxy.async since that this "
                        "lane knows of",
                        i * PX_UNIT, unit->lane, unit->warp);
    }
    return PX_NEXT;
}

int px_hazard_read(const struct px_async *async, const struct px_cta *cta,
                   uint32_t at, uint32_t bytes)
{
    for (uint32_t i = at / PX_UNIT; i <= (at + bytes - 1) / PX_UNIT; i++)
        if (cta->units[i].when > async->when)
            return px_fault(async->warp, async->op, async->lane,
                            "shared address %u was overwritten by %s before "
                            "this had read it",
                            i * PX_UNIT,
                            cta->units[i].warp == PX_BY_COPY ? "a copy"
                                                             : "a warp");
    return PX_NEXT;
}

int px_hazard_fence(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op;
    px_machine.clock++;
    PX_EACH (mask)
        w->fenced[i] = px_machine.clock;
    return PX_NEXT;
}

/* ---------------------------------------------------------------- registers */

enum { GRAIN = 64 }; /* a register begins at a multiple of it */

struct px_register {
    uint32_t sums, reads; /* the last product's number */
    uint32_t used;        /* fences before its last other use */
    uint32_t loads;       /* tcgen05.wait::ld up to its last load */
};

static inline struct px_register *use_of(const struct px_warp *w,
                                         const struct px_op *op, int i)
{
    return &w->uses[(uint32_t)op->arg[i] / GRAIN];
}

int px_hazard_warp(struct px_warp *w)
{
    w->uses = calloc(px_machine.launch->program->file_bytes / GRAIN + 1,
                     sizeof *w->uses);
    return w->uses ? PX_NEXT : px_fault_plain("out of memory");
}

void px_hazard_begin(struct px_warp *w)
{
    w->fences++;
}

int px_hazard_product(struct px_warp *w, const struct px_op *op, int sums,
                      int reads)
{
    if (!w->fences)
        return px_fault(w, op, 0, "no wgmma.fence came before it");
    for (int i = 0; i < sums + reads; i++)
        if (use_of(w, op, i)->used > w->fences)
            return px_fault(
                w, op, 0, "operand %d was used without a wgmma.fence since", i);
    for (int i = 0; i < sums; i++)
        use_of(w, op, i)->sums = (uint32_t)w->mma_issued;
    for (int i = sums; i < sums + reads; i++)
        use_of(w, op, i)->reads = (uint32_t)w->mma_issued;
    return PX_NEXT;
}

static int check_registers(struct px_warp *w, const struct px_op *op)
{
    for (int i = 0; i < op->nargs; i++) {
        const struct px_register *use = use_of(w, op, i);

        if (use->sums > w->mma_known)
            return px_fault(w, op, 0,
                            "operand %d is a sum of a wgmma that was not "
                            "waited for",
                            i);
        if (!i && use->reads > w->mma_known)
            return px_fault(w, op, 0,
                            "writes a register that a wgmma still reads");
        if (use->loads > w->waits)
            return px_fault(w, op, 0,
                            "operand %d is of a tcgen05.ld before its "
                            "tcgen05.wait::ld",
                            i);
    }
    return PX_NEXT;
}

int px_hazard_registers(struct px_warp *w, const struct px_op *op)
{
    if (op->is_product)
        return PX_NEXT;
    if ((w->is_loading || w->mma_issued > w->mma_known) &&
        check_registers(w, op))
        return PX_FAULT;
    if (px_machine.launch->program->products)
        for (int i = 0; i < op->nargs; i++)
            use_of(w, op, i)->used = w->fences + 1;
    return PX_NEXT;
}

void px_hazard_loaded(struct px_warp *w, const struct px_op *op, int registers)
{
    w->is_loading = 1;
    for (int i = 0; i < registers; i++)
        use_of(w, op, i)->loads = w->waits + 1;
}

void px_hazard_waited(struct px_warp *w)
{
    w->is_loading = 0;
    w->waits++;
}

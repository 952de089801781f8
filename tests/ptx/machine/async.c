/* SPDX-License-Identifier: Apache-2.0 */
/* async.c: copies and products in flight, and cp.async. */
#include "build.h"
#include "hazard.h"
#include "tma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct px_async **pending;
static int npending, room_pending;

void px_async_clear(void)
{
    for (int i = 0; i < npending; i++) {
        free(pending[i]->tile);
        free(pending[i]->work);
        free(pending[i]);
    }
    npending = 0;
}

int px_async_pending(void)
{
    return npending;
}

struct px_async *px_async_add(struct px_warp *w, const struct px_op *op,
                              int lane, int (*land)(struct px_async *))
{
    struct px_async *made = calloc(1, sizeof *made);

    if (!made || px_grow(&pending, npending, &room_pending, sizeof *pending)) {
        free(made);
        px_fault_plain("out of memory");
        return NULL;
    }
    made->warp = w;
    made->op = op;
    made->lane = lane;
    made->land = land;
    made->when = ++px_machine.clock;
    pending[npending++] = made;
    return made;
}

/* Products of a warp or of a thread end in order, of a warpgroup once all
   its warps have issued them. */
static int can_land(const struct px_async *async)
{
    const struct px_warp *w = async->warp;
    const struct px_warp *first = w - w->number % 4;

    if (async->queue)
        return async->order == *async->queue + 1;
    if (!async->order)
        return 1;
    for (int i = 0; i < 4; i++)
        if (first[i].mma_issued < async->order)
            return 0;
    return async->order == w->mma_landed + 1;
}

int px_async_land(void)
{
    int at = (int)(px_random(&px_machine.random) % (uint32_t)npending);
    struct px_async *async;
    int code;

    for (int i = 0; !can_land(pending[at]); i++) {
        if (i == npending)
            return PX_WAIT;
        at = (at + 1) % npending;
    }
    async = pending[at];
    code = async->land(async);
    px_machine.events++;
    async->warp->stores += (uint64_t)async->store;
    if (code != PX_NEXT)
        return code == PX_WAIT ? PX_NEXT : code;
    px_fault_trace(async->warp, async->op, 1u << async->lane, ": is done");
    pending[at] = pending[--npending];
    if (async->queue)
        ++*async->queue;
    free(async->tile);
    free(async->work);
    free(async);
    return PX_NEXT;
}

int px_async_cta_end(struct px_warp *w)
{
    for (int i = 0; i < npending; i++) {
        struct px_async *async = pending[i];
        int reads = async->store && async->stage;

        if (px_machine.leaves && async->store && !reads &&
            async->warp->cta == w->cta) {
            if (async->land(async) == PX_FAULT)
                return PX_FAULT;
            reads = 1;
        }
        if (async->warp->cta == w->cta && !reads &&
            (!async->tile || async->tile->to_cta == w->cta))
            return px_fault(async->warp, async->op, async->lane,
                            "is in flight when its CTA ends");
    }
    return PX_NEXT;
}

static uint64_t count_bulk(struct px_warp *w, int lane, uint32_t groups,
                           int read)
{
    uint64_t count = 0;

    for (int i = 0; i < npending; i++) {
        const struct px_async *async = pending[i];

        count += async->store && async->warp == w && async->lane == lane &&
                 async->group + groups < w->bulk_group[lane] &&
                 !(read && async->stage);
    }
    return px_misreads(PX_FIRST_COPIES) ? 0 : count;
}

/* ----------------------------------------------------------------- cp.async */

static int land_copy(struct px_warp *w, const struct px_op *op,
                     const struct px_copy *copy, uint32_t mask)
{
    px_machine.clock++;
    PX_EACH (mask & copy->mask) {
        unsigned char *to = px_memory_shared(w, op, copy->to[i],
                                             (unsigned)copy->bytes, i, NULL);
        const unsigned char *from = NULL;

        if (copy->taken[i])
            from = px_memory_global(w, op, copy->from[i],
                                    (uint64_t)copy->taken[i], i);
        if (!to || (copy->taken[i] && !from))
            return PX_FAULT;
        px_hazard_written(w, to, (uint32_t)copy->bytes, i);
        memset(to, 0, (size_t)copy->bytes);
        if (from)
            memcpy(to, from, (size_t)copy->taken[i]);
    }
    return PX_NEXT;
}

/* cp.async.ca.shared.global [to], [from], bytes (, of which are read) */
static int copy_async(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int bytes = (int)PX_AT(w, uint32_t, 2)[0];
    struct px_copy *copy;

    if (px_grow(&w->copies, w->ncopies, &w->room, sizeof *w->copies))
        return PX_FAULT;
    copy = &w->copies[w->ncopies];
    copy->mask = mask;
    copy->when = px_machine.clock;
    copy->bytes = bytes;
    PX_EACH (mask) {
        copy->to[i] = PX_AT(w, uint32_t, 0)[i];
        copy->from[i] = PX_AT(w, uint64_t, 1)[i];
        copy->taken[i] = (int)PX_AT(w, uint32_t, op->nargs - 1)[i];
        copy->group[i] = w->copy_group[i];
        if (copy->taken[i] > bytes)
            return px_fault(w, op, i, "reads %d of %d bytes", copy->taken[i],
                            bytes);
        if (copy->to[i] % (uint32_t)bytes || copy->from[i] % (uint32_t)bytes)
            return px_fault(w, op, i, "an address is no multiple of %d", bytes);
        if (!px_memory_shared(w, op, copy->to[i], (unsigned)bytes, i, NULL))
            return PX_FAULT;
    }
    if (px_random(&w->random) % 256 >= px_machine.late)
        return land_copy(w, op, copy, mask);
    PX_EACH (mask) /* poison until then */
        memset(px_memory_shared(w, op, copy->to[i], (unsigned)bytes, i, NULL),
               0xff, (size_t)bytes);
    w->ncopies++;
    return PX_NEXT;
}

static int copy_commit(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op;
    PX_EACH (mask)
        w->copy_group[i]++;
    return PX_NEXT;
}

/* Copies of one thread that it issued before, then its arrival. */
static int land_arrival(struct px_async *async)
{
    struct px_warp *w = async->warp;
    int kept = 0;

    for (int k = 0; k < w->ncopies; k++) {
        struct px_copy *copy = &w->copies[k];
        const uint32_t due = copy->mask & 1u << async->lane;

        if (copy->when < async->when && land_copy(w, async->op, copy, due))
            return PX_FAULT;
        copy->mask &= copy->when < async->when ? ~due : ~0u;
        if (copy->mask)
            w->copies[kept++] = *copy;
    }
    w->ncopies = kept;
    return px_barrier_arrive(w, async->op, async->tile->barrier, async->lane,
                             NULL);
}

/* cp.async.mbarrier.arrive [barrier]: each lane's comes by itself; op->sub: the
   barrier waits for it beyond those it expects. */
static int copy_arrive(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask) {
        struct px_async *async = px_async_add(w, op, i, land_arrival);
        const uint32_t at = PX_AT(w, uint32_t, 0)[i] + (uint32_t)op->offset;
        struct px_mbarrier *barrier = px_barrier_find(w, op, w->cta, at, i);

        if (!barrier || !async ||
            !(async->tile = calloc(1, sizeof *async->tile)))
            return PX_FAULT;
        barrier->pending += (uint32_t)op->sub;
        async->tile->barrier = at;
        async->tile->to_cta = w->cta;
    }
    return PX_NEXT;
}

/* Land only the batches that the thread waits for; op->sub: all. */
static int copy_wait(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t most = op->nargs ? PX_AT(w, uint32_t, 0)[0] : 0;
    int kept = 0;

    for (int k = 0; k < w->ncopies; k++) {
        struct px_copy *copy = &w->copies[k];
        uint32_t due = 0;

        PX_EACH (mask & copy->mask)
            if (op->sub || (px_misreads(PX_FIRST_COPIES)
                                ? copy->group[i] < most
                                : copy->group[i] + most < w->copy_group[i]))
                due |= 1u << i;
        if (land_copy(w, op, copy, due))
            return PX_FAULT;
        copy->mask &= ~due;
        if (copy->mask)
            w->copies[kept++] = *copy;
    }
    w->ncopies = kept;
    return PX_NEXT;
}

/* --------------------------------------------------------- groups of stores */

static int bulk_commit(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op;
    PX_EACH (mask)
        w->bulk_group[i]++;
    return PX_NEXT;
}

static int bulk_wait(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask)
        if (count_bulk(w, i, PX_AT(w, uint32_t, 0)[i], op->sub))
            return px_wait_for(w, &w->stores);
    return PX_NEXT;
}

static const struct {
    const char *name, *types;
    int (*run)(struct px_warp *, const struct px_op *, uint32_t);
    int sub;
} rows[] = {
    {"cp.async.ca.shared.global", "rdr", copy_async, 0},
    {"cp.async.ca.shared.global", "rdrr", copy_async, 0},
    {"cp.async.ca.shared.global.L2::128B", "rdr", copy_async, 0},
    {"cp.async.ca.shared.global.L2::128B", "rdrr", copy_async, 0},
    {"cp.async.cg.shared.global", "rdr", copy_async, 0},
    {"cp.async.cg.shared.global", "rdrr", copy_async, 0},
    {"cp.async.cg.shared.global.L2::128B", "rdr", copy_async, 0},
    {"cp.async.cg.shared.global.L2::128B", "rdrr", copy_async, 0},
    {"cp.async.cg.shared.global.L2::256B", "rdr", copy_async, 0},
    {"cp.async.cg.shared.global.L2::256B", "rdrr", copy_async, 0},
    {"cp.async.mbarrier.arrive.noinc.shared::cta.b64", "r", copy_arrive, 0},
    {"cp.async.mbarrier.arrive.shared::cta.b64", "r", copy_arrive, 1},
    {"cp.async.commit_group", "", copy_commit, 0},
    {"cp.async.wait_group", "r", copy_wait, 0},
    {"cp.async.wait_all", "", copy_wait, 1},
    {"cp.async.bulk.commit_group", "", bulk_commit, 0},
    {"cp.async.bulk.wait_group", "r", bulk_wait, 0},
    {"cp.async.bulk.wait_group.read", "r", bulk_wait, 1},
};

int px_setup_async(struct px_build *b)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, b->mnemonic) ||
            strlen(rows[i].types) != (size_t)b->noperands)
            continue;
        b->op->run = rows[i].run;
        b->op->sub = (short)rows[i].sub;
        if (b->op->offset && rows[i].run != copy_arrive)
            return px_bad(b, "an offset is not known here");
        for (int k = 0; k < b->noperands; k++)
            if (px_give(b, k, rows[i].types[k]))
                return PX_FAULT;
        return PX_EXIT;
    }
    return px_setup_tile(b);
}

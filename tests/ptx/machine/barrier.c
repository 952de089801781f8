/* SPDX-License-Identifier: Apache-2.0 */
/* barrier.c: barriers of a CTA, of a cluster, and in shared memory. */
#include "build.h"
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int first_lane(uint32_t mask)
{
    return __builtin_ctz(mask);
}

/* ---------------------------------------------------------------- of a CTA */

static void complete(struct px_barrier *barrier)
{
    px_order_complete(&barrier->heard);
    barrier->arrived = barrier->expected = 0;
    barrier->generation++;
    px_machine.events++;
}

static int arrive(struct px_warp *w, const struct px_op *op, int lane,
                  struct px_barrier *barrier, uint32_t threads)
{
    if (barrier->arrived && barrier->expected != threads)
        return px_fault(w, op, lane, "barrier of %u threads, others say %u",
                        threads, barrier->expected);
    if (threads % PX_LANES)
        return px_fault(w, op, lane, "%u threads are no whole warps", threads);
    if (px_order_arrive(w, &barrier->heard, NULL))
        return PX_FAULT;
    barrier->expected = threads;
    barrier->arrived += PX_LANES;
    if (threads && barrier->arrived > threads)
        return px_fault(w, op, lane, "more than %u threads", threads);
    if (barrier->arrived ==
        (threads ? threads : (uint32_t)w->cta->live_warps * PX_LANES))
        complete(barrier);
    return PX_NEXT;
}

static struct px_barrier *named(struct px_warp *w, const struct px_op *op,
                                int lane)
{
    const uint32_t which = PX_AT(w, uint32_t, 0)[lane];

    if (which < PX_BARRIERS)
        return &w->cta->barrier[which];
    px_fault(w, op, lane, "there is no barrier %u", which);
    return NULL;
}

static uint32_t threads_of(struct px_warp *w, const struct px_op *op, int lane)
{
    return op->nargs > 1 ? PX_AT(w, uint32_t, 1)[lane] : 0;
}

static int bar_sync(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int lane = first_lane(mask);
    struct px_part *part = &w->part[w->current];
    struct px_barrier *barrier = named(w, op, lane);

    if (!barrier)
        return PX_FAULT;
    if (!part->ticket) {
        part->ticket = barrier->generation + 1;
        if (arrive(w, op, lane, barrier, threads_of(w, op, lane)))
            return PX_FAULT;
    }
    if (barrier->generation < part->ticket)
        return px_wait_for(w, &barrier->generation);
    px_order_pass(w, &barrier->heard);
    part->ticket = 0;
    return PX_YIELD;
}

static int bar_arrive(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int lane = first_lane(mask);
    struct px_barrier *barrier = named(w, op, lane);

    if (!barrier)
        return PX_FAULT;
    return arrive(w, op, lane, barrier, threads_of(w, op, lane));
}

/* ------------------------------------------------------------- of a cluster */

static void recheck_cluster(struct px_cluster *cluster)
{
    if (!cluster->arrived || cluster->arrived < (uint32_t)cluster->live_warps)
        return;
    px_order_complete(&cluster->heard);
    cluster->arrived = 0;
    cluster->generation++;
    px_machine.events++;
}

static int cluster_arrive(struct px_warp *w, const struct px_op *op,
                          uint32_t mask)
{
    struct px_cluster *cluster = w->cta->cluster;

    if (w->cluster_ticket > cluster->generation)
        return px_fault(w, op, first_lane(mask), "arrives twice");
    if (px_order_arrive(w, &cluster->heard, NULL))
        return PX_FAULT;
    w->cluster_ticket = cluster->generation + 1;
    cluster->arrived++;
    recheck_cluster(cluster);
    return PX_YIELD;
}

/* Without .aligned (op->sub) lanes may come one after the other. */
static int cluster_wait(struct px_warp *w, const struct px_op *op,
                        uint32_t mask)
{
    if (!w->cluster_ticket)
        return px_fault(w, op, first_lane(mask), "waits without an arrival");
    if (w->cta->cluster->generation < w->cluster_ticket)
        return px_wait_for(w, &w->cta->cluster->generation);
    px_order_pass(w, &w->cta->cluster->heard);
    if (!op->sub)
        w->cluster_ticket = 0;
    return PX_YIELD;
}

void px_barrier_recheck(struct px_cta *cta)
{
    for (int i = 0; i < PX_BARRIERS; i++) {
        struct px_barrier *barrier = &cta->barrier[i];

        if (barrier->arrived && !barrier->expected &&
            barrier->arrived >= (uint32_t)cta->live_warps * PX_LANES)
            complete(barrier);
    }
    recheck_cluster(cta->cluster);
}

/* --------------------------------------------------------- in shared memory */

/* A barrier's 8 bytes, so that a write over them is seen. */
static const uint64_t signature = 0x6261727269657221;

/* A barrier's number by its address, from 1 on; 0: there is none. */
static int number_at(const struct px_cta *cta, uint32_t at)
{
    return at % 8 || at >= cta->shared_bytes ? 0 : cta->mbarrier_at[at / 8];
}

struct px_mbarrier *px_barrier_find(struct px_warp *w, const struct px_op *op,
                                    struct px_cta *cta, uint32_t address,
                                    int lane)
{
    const uint32_t at = address & ((1u << PX_RANK_SHIFT) - 1);
    const int number = number_at(cta, at);

    if (!number) {
        px_fault(w, op, lane, "there is no barrier at %u of CTA rank %d", at,
                 cta->rank);
        return NULL;
    }
    if (memcmp(cta->shared + at, &signature, sizeof signature)) {
        px_fault(w, op, lane, "the barrier at %u was overwritten", at);
        return NULL;
    }
    return &cta->mbarrier[number - 1];
}

int px_barrier_is_own(const struct px_cta *cta, uint32_t address)
{
    const uint32_t rank = address >> PX_RANK_SHIFT;

    return !rank || rank == (uint32_t)cta->rank + PX_FIRST_RANK;
}

static void settle(struct px_mbarrier *barrier)
{
    if (barrier->pending || (barrier->bytes && !px_misreads(PX_EARLY_PHASE)))
        return;
    px_order_complete(&barrier->heard);
    barrier->pending = barrier->expected;
    barrier->phase++;
    barrier->changes++;
    px_machine.events++;
}

void px_barrier_complete(struct px_mbarrier *barrier, int64_t bytes)
{
    barrier->bytes -= bytes;
    settle(barrier);
}

/* Another barrier, or none; those who wait look again. */
static void reset(struct px_mbarrier *barrier, uint32_t address, uint32_t count)
{
    const uint64_t changes = barrier->changes + 1;

    px_order_end(&barrier->heard);
    *barrier = (struct px_mbarrier){.address = address,
                                    .expected = count,
                                    .pending = count,
                                    .changes = changes};
}

/* The barrier at an address, or a free one; NULL if there are too many. */
static struct px_mbarrier *take(struct px_cta *cta, uint32_t at)
{
    int number = number_at(cta, at);

    for (int k = 0; k < PX_MBARRIERS && !number; k++)
        if (!cta->mbarrier[k].address)
            number = k + 1;
    cta->mbarrier_at[at / 8] = (uint8_t)number;
    return number ? &cta->mbarrier[number - 1] : NULL;
}

static int mbarrier_init(struct px_warp *w, const struct px_op *op,
                         uint32_t mask)
{
    PX_EACH (mask) {
        const uint32_t given = PX_AT(w, uint32_t, 0)[i] + (uint32_t)op->offset;
        const uint32_t at = given & ((1u << PX_RANK_SHIFT) - 1);
        struct px_cta *cta;
        unsigned char *memory = px_memory_shared(w, op, given, 8, i, &cta);
        struct px_mbarrier *barrier;

        if (!memory)
            return PX_FAULT;
        if (at % 8)
            return px_fault(w, op, i, "address %u is no multiple of 8", at);
        barrier = take(cta, at);
        if (!barrier)
            return px_fault(w, op, i, "more than %d barriers", PX_MBARRIERS);
        reset(barrier, at, PX_AT(w, uint32_t, 1)[i]);
        memcpy(memory, &signature, sizeof signature);
    }
    return PX_NEXT;
}

/* Arrive at lane i's barrier, after it expects so many more bytes. */
static int arrive_at(struct px_warp *w, const struct px_op *op, uint64_t at,
                     int i, uint32_t count, uint32_t bytes,
                     const uint32_t *heard)
{
    struct px_cta *owner;
    struct px_mbarrier *barrier;

    if (!px_memory_shared(w, op, at, 8, i, &owner))
        return PX_FAULT;
    barrier = px_barrier_find(w, op, owner, (uint32_t)at, i);
    if (!barrier)
        return PX_FAULT;
    if (barrier->pending < count)
        return px_fault(w, op, i, "%u arrivals at a barrier that waits for %u",
                        count, barrier->pending);
    if (px_order_arrive(w, &barrier->heard, heard))
        return PX_FAULT;
    barrier->bytes += bytes;
    barrier->pending -= count;
    settle(barrier);
    return PX_NEXT;
}

int px_barrier_arrive(struct px_warp *w, const struct px_op *op,
                      uint64_t address, int lane, const uint32_t *heard)
{
    return arrive_at(w, op, address, lane, 1, 0, heard);
}

/* op->sub: 'a'rrive, 'e'xpect and arrive, 't'ell the bytes */
static int mbarrier_arrive(struct px_warp *w, const struct px_op *op,
                           uint32_t mask)
{
    const int at = op->sub == 't' ? 0 : 1;

    PX_EACH (mask) {
        const uint32_t address =
            PX_AT(w, uint32_t, at)[i] + (uint32_t)op->offset;
        const uint32_t last = PX_AT(w, uint32_t, op->nargs - 1)[i];
        const int counted = op->sub == 'a' && op->nargs > 2;

        if (arrive_at(w, op, address, i,
                      op->sub == 't' ? 0
                      : counted      ? last
                                     : 1,
                      op->sub == 'a' ? 0 : last, NULL))
            return PX_FAULT;
    }
    return PX_NEXT;
}

/* The barrier of lane i, if that may wait for it. */
static struct px_mbarrier *waited_for(struct px_warp *w, const struct px_op *op,
                                      uint32_t at, uint32_t parity, int i)
{
    struct px_mbarrier *barrier = px_barrier_find(w, op, w->cta, at, i);

    if (!barrier)
        return NULL;
    if (!px_barrier_is_own(w->cta, at)) {
        px_fault(w, op, i, "the barrier is another CTA's");
        return NULL;
    }
    if (parity > 1) {
        px_fault(w, op, i, "parity %u", parity);
        return NULL;
    }
    return barrier;
}

/* Those of the lanes that wait as the first of them does. */
static uint32_t alike(struct px_warp *w, const struct px_op *op, uint32_t lanes)
{
    const uint32_t *at = PX_AT(w, uint32_t, 1), *parity = PX_AT(w, uint32_t, 2);
    const int first = first_lane(lanes);
    uint32_t out = 0;

    for (int i = 0; i < PX_LANES; i++)
        out |= (uint32_t)(at[i] == at[first] && parity[i] == parity[first])
               << i;
    return out & lanes;
}

/* try_wait.parity p, [at], parity (, time): half of those that find nothing
   fail, the others wait until there is a change. */
static int mbarrier_wait(struct px_warp *w, const struct px_op *op,
                         uint32_t mask)
{
    uint32_t *p = PX_AT(w, uint32_t, 0), done = 0, rest = mask;
    struct px_part *part = &w->part[w->current];
    struct px_mbarrier *barrier = NULL;
    int barriers = 0;

    while (rest) {
        const int i = first_lane(rest);
        const uint32_t at = PX_AT(w, uint32_t, 1)[i] + (uint32_t)op->offset;
        const uint32_t parity = PX_AT(w, uint32_t, 2)[i];
        const uint32_t lanes = alike(w, op, rest);

        barrier = waited_for(w, op, at, parity, i);
        if (!barrier)
            return PX_FAULT;
        if ((barrier->phase & 1) != (parity ^ px_misreads(PX_PARITY))) {
            done |= lanes;
            px_order_pass(w, &barrier->heard);
        }
        rest &= ~lanes;
        barriers++;
    }
    if (!done && !part->is_hasty && px_random(&w->random) % 2)
        return barriers == 1 ? px_wait_for(w, &barrier->changes) : PX_WAIT;
    part->is_hasty = 0;
    *p = (*p & ~mask) | done;
    return done == mask ? PX_NEXT : PX_YIELD;
}

static int map_address(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask) {
        const uint32_t at = PX_AT(w, uint32_t, 1)[i];
        const uint32_t rank = PX_AT(w, uint32_t, 2)[i];

        if (rank >= (uint32_t)w->cta->cluster->size)
            return px_fault(w, op, i, "the cluster has no rank %u", rank);
        PX_AT(w, uint32_t, 0)
        [i] = (rank + PX_FIRST_RANK) << PX_RANK_SHIFT |
              (at & ((1u << PX_RANK_SHIFT) - 1));
    }
    return PX_NEXT;
}

/* The bytes of a barrier that is given up are memory again. */
static int mbarrier_end(struct px_warp *w, const struct px_op *op,
                        uint32_t mask)
{
    PX_EACH (mask) {
        struct px_mbarrier *barrier = px_barrier_find(
            w, op, w->cta, PX_AT(w, uint32_t, 0)[i] + (uint32_t)op->offset, i);

        if (!barrier)
            return PX_FAULT;
        w->cta->mbarrier_at[barrier->address / 8] = 0;
        reset(barrier, 0, 0);
    }
    return PX_NEXT;
}

static const struct {
    const char *name, *types;
    int (*run)(struct px_warp *, const struct px_op *, uint32_t);
    char meet, sub;
} rows[] = {
    {"bar.sync", "r", bar_sync, PX_MEET_ALL, 0},
    {"bar.sync", "rr", bar_sync, PX_MEET_ALL, 0},
    {"barrier.sync", "r", bar_sync, PX_MEET_ALL, 0},
    {"barrier.sync", "rr", bar_sync, PX_MEET_ALL, 0},
    {"bar.arrive", "rr", bar_arrive, PX_MEET_ALL, 0},
    {"barrier.cluster.arrive.release.aligned", "", cluster_arrive, PX_MEET_ALL,
     0},
    {"barrier.cluster.arrive.relaxed.aligned", "", cluster_arrive, PX_MEET_ALL,
     0},
    {"barrier.cluster.arrive.aligned", "", cluster_arrive, PX_MEET_ALL, 0},
    {"barrier.cluster.wait.acquire.aligned", "", cluster_wait, PX_MEET_ALL, 0},
    {"barrier.cluster.wait.aligned", "", cluster_wait, PX_MEET_ALL, 0},
    {"barrier.cluster.wait.acquire", "", cluster_wait, 0, 'n'},
    {"mapa.shared::cluster.u32", "rrr", map_address, 0, 0},
    {"mbarrier.init.shared::cta.b64", "rr", mbarrier_init, 0, 0},
    {"mbarrier.inval.shared::cta.b64", "r", mbarrier_end, 0, 0},
    {"mbarrier.arrive.shared::cta.b64", "rr", mbarrier_arrive, 0, 'a'},
    {"mbarrier.arrive.release.cta.shared::cta.b64", "rr", mbarrier_arrive, 0,
     'a'},
    {"mbarrier.arrive.release.cta.shared::cta.b64", "rrr", mbarrier_arrive, 0,
     'a'},
    {"mbarrier.arrive.shared::cta.b64", "rrr", mbarrier_arrive, 0, 'a'},
    {"mbarrier.arrive.shared::cluster.b64", "rr", mbarrier_arrive, 0, 'a'},
    {"mbarrier.arrive.shared::cluster.b64", "rrr", mbarrier_arrive, 0, 'a'},
    {"mbarrier.arrive.release.cta.shared::cluster.b64", "rr", mbarrier_arrive,
     0, 'a'},
    {"mbarrier.arrive.expect_tx.shared::cta.b64", "rrr", mbarrier_arrive, 0,
     'e'},
    {"mbarrier.expect_tx.relaxed.cta.shared::cta.b64", "rr", mbarrier_arrive, 0,
     't'},
    {"mbarrier.expect_tx.shared::cta.b64", "rr", mbarrier_arrive, 0, 't'},
    {"mbarrier.try_wait.parity.shared::cta.b64", "prr", mbarrier_wait, 0, 0},
    {"mbarrier.try_wait.parity.shared::cta.b64", "prrr", mbarrier_wait, 0, 0},
    {"mbarrier.test_wait.parity.shared::cta.b64", "prr", mbarrier_wait, 0, 0},
};

int px_setup_barrier(struct px_build *b)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, b->mnemonic) ||
            strlen(rows[i].types) != (size_t)b->noperands)
            continue;
        b->op->run = rows[i].run;
        b->op->meet = rows[i].meet;
        b->op->sub = rows[i].sub;
        for (int k = 0; k < b->noperands; k++)
            if (px_give(b, k, rows[i].types[k]))
                return PX_FAULT;
        return PX_EXIT;
    }
    return PX_NEXT;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** schedule.c: which warp goes on, for how long, and when copies land: all of it
** random, by the machine's seed.
**
** A warp's lanes are in one part as long as they agree about branches. Parts
** that come to the same instruction become one again; the part with the lowest
** pc goes first, unless it waits.
*/
#include "build.h"
#include "hazard.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------- parts of warps */

static void merge(struct px_warp *w, int into, int from)
{
    w->part[into].mask |= w->part[from].mask;
    w->part[into].state = PX_RUN;
    w->part[from] = w->part[--w->parts];
}

/* Lanes that are at the same place go on together. */
static void merge_all(struct px_warp *w)
{
    for (int i = 0; i < w->parts; i++)
        for (int j = i + 1; j < w->parts;)
            if (w->part[i].pc == w->part[j].pc && !w->part[i].ticket &&
                !w->part[j].ticket)
                merge(w, i, j);
            else
                j++;
}

static int can_run(const struct px_part *part)
{
    return part->state == PX_RUN ||
           (part->state == PX_BLOCKED && part->stamp != *part->wakes);
}

/* The part to run: the lowest pc of those that can; -1 if none. */
static int choose_part(const struct px_warp *w)
{
    int best = -1;

    for (int i = 0; i < w->parts; i++)
        if (can_run(&w->part[i]) &&
            (best < 0 || w->part[i].pc < w->part[best].pc))
            best = i;
    return best;
}

/* Lanes of a warp are threads: now and then some go ahead of the others, until
   all must meet, or for a while. */
static void maybe_split(struct px_warp *w)
{
    struct px_part *part = &w->part[0];
    uint32_t ahead;

    if (w->parts > 1 || part->ticket || px_random(&w->random) % 16)
        return;
    ahead = px_random(&w->random) & part->mask;
    if (!ahead || ahead == part->mask || part->state != PX_RUN)
        return;
    w->part[w->parts++] = (struct px_part){.pc = part->pc, .mask = ahead};
    part->mask &= ~ahead;
    w->apart = 64;
}

/* The part to run while some are ahead: any. */
static int choose_any(struct px_warp *w)
{
    int at = (int)(px_random(&w->random) % (uint32_t)w->parts);

    w->apart--;
    for (int i = 0; i < w->parts; i++, at = (at + 1) % w->parts)
        if (can_run(&w->part[at]))
            return at;
    w->apart = 0; /* all wait for others */
    merge_all(w);
    return choose_part(w);
}

/* Lanes `taken` of the current part jump. */
static int branch(struct px_warp *w, const struct px_op *op, uint32_t taken)
{
    struct px_part *part = &w->part[w->current];

    if (!taken) {
        part->pc++;
        return 0;
    }
    if (taken == part->mask) {
        part->pc = op->target;
        return 0;
    }
    w->part[w->parts++] = (struct px_part){.pc = op->target, .mask = taken};
    part->mask &= ~taken;
    part->pc++;
    return 1;
}

/* All lanes that an instruction is for must be at it. */
static int is_met(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    uint32_t want = w->live;

    if (op->meet == PX_MEET_MASK)
        want &= PX_AT(w, uint32_t, op->nargs - 1)[__builtin_ctz(mask)];
    return !(want & ~mask);
}

static int end_lanes(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    struct px_part *part = &w->part[w->current];

    part->mask &= ~mask;
    part->pc++;
    w->live &= ~mask;
    if (!part->mask)
        *part = w->part[--w->parts];
    for (int i = 0; i < w->parts; i++)
        w->part[i].state = PX_RUN;
    if (w->live)
        return PX_NEXT;
    if (w->mma_issued != w->mma_landed)
        return px_fault(w, op, 0, "the warp ends before its wgmma");
    w->cta->live_warps--;
    w->cta->cluster->live_warps--;
    if (w->cluster_ticket > w->cta->cluster->generation)
        w->cta->cluster->arrived--;
    px_machine.events++;
    px_barrier_recheck(w->cta);
    if (!w->cta->live_warps)
        return px_async_cta_end(w) || px_tmem_check_end(w) ? PX_FAULT : PX_NEXT;
    return PX_NEXT;
}

/* One instruction of the current part; nonzero if another part may be next. */
static int step(struct px_warp *w, int *code)
{
    struct px_part *part = &w->part[w->current];
    const struct px_op *op = &px_machine.launch->program->ops[part->pc];
    uint32_t mask = part->mask;

    if (op->guard >= 0)
        mask &= *(uint32_t *)(void *)(w->file + op->guard) ^ op->guard_not;
    if (op->branch)
        return branch(w, op, mask);
    if (!mask) {
        part->pc++;
        return 0;
    }
    if (op->meet && !is_met(w, op, mask)) {
        part->state = PX_APART_YET;
        return 1;
    }
    if (w->uses && px_hazard_registers(w, op)) {
        *code = PX_FAULT;
        return 1;
    }
    if (op->meet) {
        w->met = ++px_machine.clock;
        memcpy(w->known, w->fenced, sizeof w->known);
    }
    part->wakes = &px_machine.events;
    *code = op->run(w, op, mask);
    if (px_machine.trace && *code != PX_WAIT)
        px_fault_trace(w, op, mask, "");
    switch (*code) {
    case PX_NEXT:
        part->pc++;
        return 0;
    case PX_YIELD:
        part->pc++;
        return 1;
    case PX_WAIT:
        part->state = PX_BLOCKED;
        part->stamp = *part->wakes;
        part->is_hasty = 0;
        return 1;
    case PX_EXIT:
        *code = end_lanes(w, op, mask);
        return 1;
    default:
        return 1;
    }
}

/* Up to `budget` instructions, fewer if the warp waits. PX_FAULT. */
static int run_warp(struct px_warp *w, int budget)
{
    int code = PX_NEXT;

    px_machine.steps += (uint64_t)budget;
    maybe_split(w);
    while (budget > 0 && w->live) {
        w->current = w->apart ? choose_any(w) : choose_part(w);
        if (w->current < 0)
            break;
        w->part[w->current].state = PX_RUN;
        while (--budget > 0 && !step(w, &code))
            if (w->parts > 1 && !w->apart)
                break;
        if (code == PX_FAULT)
            return PX_FAULT;
        if (code == PX_YIELD)
            break;
        if (w->parts > 1 && (!w->apart || choose_part(w) < 0)) {
            w->apart = 0;
            merge_all(w);
        }
    }
    px_machine.steps -= (uint64_t)(budget > 0 ? budget : 0);
    return PX_NEXT;
}

static int warp_can_run(struct px_warp *w)
{
    return w->live && choose_part(w) >= 0;
}

/* ----------------------------------------------------------- CTAs, clusters */

struct resident {
    struct px_cluster **cluster;
    int n, most;
    struct px_warp **warps; /* of all of them */
    int nwarps;
    uint64_t next, count; /* clusters of the grid */
    uint64_t stuck;       /* at this event all waited */
    int hurries;          /* so often since */
};

static int start_warp(struct px_warp *w, struct px_cta *cta, int number)
{
    const struct px_program *program = px_machine.launch->program;
    const uint32_t threads = px_machine.launch->block[0] *
                             px_machine.launch->block[1] *
                             px_machine.launch->block[2];
    const uint32_t rest = threads - (uint32_t)(number * PX_LANES);

    memset(w, 0, sizeof *w);
    w->cta = cta;
    w->number = number;
    w->random = px_random(&px_machine.random);
    w->live = rest < PX_LANES ? (1u << rest) - 1 : PX_ALL;
    w->parts = 1;
    w->part[0].mask = w->live;
    if (program->max_threads)
        w->registers = 65536u / (uint32_t)program->min_ctas /
                       (uint32_t)program->max_threads / 8 * 8;
    if (w->registers > program->most_registers)
        w->registers = program->most_registers;
    return px_registers_take(w) || (program->tensor && px_tmem_warp(w))
               ? PX_FAULT
               : PX_NEXT;
}

static int start_cta(struct px_cta *cta, struct px_cluster *cluster, int rank,
                     const uint32_t first[3])
{
    const struct px_launch *launch = px_machine.launch;
    const uint32_t *c = launch->cluster, *block = launch->block;
    const uint32_t threads = block[0] * block[1] * block[2];
    const uint32_t r = (uint32_t)rank;

    cta->cluster = cluster;
    cta->rank = rank;
    cta->id[0] = first[0] + r % c[0];
    cta->id[1] = first[1] + r / c[0] % c[1];
    cta->id[2] = first[2] + r / c[0] / c[1];
    cta->shared_bytes = PX_SHARED_START +
                        (uint32_t)launch->program->shared_bytes +
                        launch->dynamic_bytes + 127;
    cta->shared_bytes &= ~127u;
    cta->shared = malloc(cta->shared_bytes);
    cta->mbarrier_at = calloc(cta->shared_bytes / 8, 1);
    cta->nwarps = (int)((threads + PX_LANES - 1) / PX_LANES);
    cta->warps = calloc((size_t)cta->nwarps, sizeof *cta->warps);
    if (!cta->shared || !cta->mbarrier_at || !cta->warps)
        return px_fault_plain("out of memory");
    memset(cta->shared, 0xff, cta->shared_bytes);
    if (px_hazard_cta(cta) || (launch->program->tensor && px_tmem_cta(cta)))
        return PX_FAULT;
    for (int i = 0; i < cta->nwarps; i++) {
        if (start_warp(&cta->warps[i], cta, i))
            return PX_FAULT;
        cta->live_warps++;
        cluster->live_warps++;
    }
    return PX_NEXT;
}

static void end_cluster(struct px_cluster *cluster)
{
    for (int i = 0; i < cluster->size; i++) {
        struct px_cta *cta = &cluster->cta[i];

        for (int k = 0; cta->warps && k < cta->nwarps; k++) {
            px_registers_give(&cta->warps[k]);
            px_tmem_warp_end(&cta->warps[k]);
            free(cta->warps[k].copies);
        }
        free(cta->warps);
        free(cta->shared);
        free(cta->units);
        free(cta->mbarrier_at);
        free(cta->issued);
        px_tmem_cta_end(cta);
        for (int k = 0; k < PX_BARRIERS; k++)
            px_order_end(&cta->barrier[k].heard);
        for (int k = 0; k < PX_MBARRIERS; k++)
            px_order_end(&cta->mbarrier[k].heard);
    }
    px_order_end(&cluster->heard);
    free(cluster);
}

/* The list of all warps that are here. */
static void list_warps(struct resident *r)
{
    r->nwarps = 0;
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->cluster[i]->size; k++)
            for (int j = 0; j < r->cluster[i]->cta[k].nwarps; j++)
                r->warps[r->nwarps++] = &r->cluster[i]->cta[k].warps[j];
}

static int start_cluster(struct resident *r)
{
    const struct px_launch *launch = px_machine.launch;
    const uint32_t *grid = launch->grid, *c = launch->cluster;
    const uint64_t x = grid[0] / c[0], y = grid[1] / c[1];
    const uint32_t first[3] = {(uint32_t)(r->next % x) * c[0],
                               (uint32_t)(r->next / x % y) * c[1],
                               (uint32_t)(r->next / x / y) * c[2]};
    struct px_cluster *cluster = calloc(1, sizeof *cluster);

    if (!cluster)
        return px_fault_plain("out of memory");
    r->cluster[r->n++] = cluster;
    r->next++;
    cluster->size = (int)(c[0] * c[1] * c[2]);
    for (int i = 0; i < cluster->size; i++)
        if (start_cta(&cluster->cta[i], cluster, i, first))
            return PX_FAULT;
    return PX_NEXT;
}

/* As many as there is room for. Stores of CTAs that have ended stay in flight,
   so they land before their memory goes. */
static int exchange_clusters(struct resident *r)
{
    int changed = 0;

    for (int i = 0; i < r->n; i++) {
        int code = PX_NEXT;

        if (r->cluster[i]->live_warps)
            continue;
        while (px_async_pending() && code == PX_NEXT)
            code = px_async_land();
        if (code == PX_FAULT)
            return code;
        end_cluster(r->cluster[i]);
        r->cluster[i--] = r->cluster[--r->n];
        changed = 1;
    }
    while (r->n < r->most && r->next < r->count) {
        if (start_cluster(r))
            return PX_FAULT;
        changed = 1;
    }
    if (changed)
        list_warps(r);
    return PX_NEXT;
}

/* --------------------------------------------------------------- the launch */

/* How many parts of warps are at an instruction; the first of them. */
static int count_at(const struct resident *r, int pc, const struct px_warp **at)
{
    int count = 0;

    for (int i = 0; i < r->nwarps; i++)
        for (int k = 0; r->warps[i]->live && k < r->warps[i]->parts; k++)
            if (r->warps[i]->part[k].pc == pc && !count++)
                *at = r->warps[i];
    return count;
}

/* The instructions at which warps wait. */
static int fault_deadlock(const struct resident *r)
{
    const struct px_program *program = px_machine.launch->program;
    char *text = px_machine.fault;
    const size_t size = sizeof px_machine.fault;
    size_t at =
        (size_t)snprintf(text, size, "%.200s.cu: deadlock", program->name);

    for (int pc = 0; pc < program->nops && at < size; pc++) {
        const struct px_op *op = &program->ops[pc];
        const struct px_warp *w = NULL;
        const int count = count_at(r, pc, &w);

        if (count)
            at += (size_t)snprintf(
                text + at, size - at,
                "; line %d (inlined at %d), %s: %d, as warp %d of CTA "
                "(%u,%u,%u)",
                op->line, op->outer, op->text, count, w->number, w->cta->id[0],
                w->cta->id[1], w->cta->id[2]);
    }
    return PX_FAULT;
}

/* All wait. Some may look at several barriers in turn, so waits that may fail
   do so four times, unless something happens. PX_WAIT if that was in vain. */
static int hurry(struct resident *r)
{
    if (r->stuck != px_machine.events)
        r->hurries = 0;
    r->stuck = px_machine.events;
    if (r->hurries++ == 4)
        return PX_WAIT;
    for (int i = 0; i < r->nwarps; i++)
        for (int k = 0; k < r->warps[i]->parts; k++)
            if (r->warps[i]->part[k].state == PX_BLOCKED) {
                r->warps[i]->part[k].state = PX_RUN;
                r->warps[i]->part[k].is_hasty = 1;
            }
    return PX_NEXT;
}

/* One warp, for a while; or a copy that lands. */
static int turn(struct resident *r)
{
    const uint32_t chance = px_random(&px_machine.random);
    int at = (int)(px_random(&px_machine.random) % (uint32_t)r->nwarps);

    int code = PX_WAIT;

    if (px_async_pending() && chance % 256 >= px_machine.late)
        code = px_async_land();
    if (code != PX_WAIT)
        return code;
    for (int i = 0; i < r->nwarps; i++, at = (at + 1) % r->nwarps)
        if (warp_can_run(r->warps[at]))
            return run_warp(r->warps[at], 8 << (chance >> 8) % 8);
    if (px_async_pending())
        code = px_async_land();
    if (code == PX_WAIT)
        code = hurry(r);
    return code == PX_WAIT ? fault_deadlock(r) : code;
}

static int run_clusters(struct resident *r)
{
    for (;;) {
        if (exchange_clusters(r))
            return PX_FAULT;
        if (!r->n)
            return PX_NEXT;
        if (turn(r))
            return PX_FAULT;
        if (px_machine.steps > px_machine.most_steps)
            return px_fault_plain("%s: more than %llu instructions of warps; "
                                  "it may wait for ever",
                                  px_machine.launch->program->name,
                                  (unsigned long long)px_machine.most_steps);
    }
}

static int check_launch(const struct px_launch *launch)
{
    const uint32_t *c = launch->cluster, *grid = launch->grid;
    const uint32_t threads =
        launch->block[0] * launch->block[1] * launch->block[2];

    for (int i = 0; i < 3; i++)
        if (!grid[i] || !launch->block[i] || !c[i] || grid[i] % c[i])
            return px_fault_plain("%s: the grid is no whole clusters",
                                  launch->program->name);
    if (threads > 1024 || c[0] * c[1] * c[2] > PX_RANKS ||
        (launch->program->max_threads &&
         threads > (uint32_t)launch->program->max_threads))
        return px_fault_plain("%s: %u threads, clusters of %u",
                              launch->program->name, threads,
                              c[0] * c[1] * c[2]);
    return PX_NEXT;
}

/* A copy of the arguments, laid out as the kernel declares them. */
static int copy_params(const struct px_launch *launch)
{
    const struct px_program *program = launch->program;

    px_machine.params =
        aligned_alloc(128, ((size_t)program->param_bytes + 255) / 128 * 128);
    if (!px_machine.params)
        return px_fault_plain("out of memory");
    for (int i = 0; i < program->nparams; i++)
        memcpy(px_machine.params + program->params[i].offset, launch->params[i],
               (size_t)program->params[i].bytes);
    return PX_NEXT;
}

int px_schedule_run(const struct px_launch *launch)
{
    const uint32_t *c = launch->cluster, *grid = launch->grid;
    const uint32_t size = c[0] * c[1] * c[2];
    struct resident r = {0};
    int code = check_launch(launch);

    if (code)
        return code;
    px_machine.launch = launch;
    px_machine.steps = 0;
    px_machine.events++;
    r.count = (uint64_t)grid[0] * grid[1] * grid[2] / size;
    r.most = px_machine.resident / (int)size;
    r.most = r.most < 1 ? 1 : r.most;
    r.cluster = calloc((size_t)r.most, sizeof *r.cluster);
    r.warps = calloc((size_t)r.most * size * 32, sizeof *r.warps);
    code = r.cluster && r.warps ? copy_params(launch)
                                : px_fault_plain("out of memory");
    if (!code)
        code = run_clusters(&r);
    px_async_clear();
    for (int i = 0; i < r.n; i++)
        end_cluster(r.cluster[i]);
    free(r.cluster);
    free(r.warps);
    free(px_machine.params);
    px_machine.params = NULL;
    px_machine.launch = NULL;
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* warp.c: lanes of a warp among themselves, and the end of lanes. */
#include "build.h"
#include "hazard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int first_lane(uint32_t mask)
{
    return __builtin_ctz(mask);
}

/* The mask that the instruction names, of the lanes that still run. */
static uint32_t members(const struct px_warp *w, const struct px_op *op,
                        uint32_t mask)
{
    return PX_AT(w, const uint32_t, op->nargs - 1)[first_lane(mask)] & w->live;
}

/* --------------------------------------------------------------------- shfl */

enum { UP, DOWN, BFLY, IDX };

/* shfl.sync d|p, a, b, c, mask; the lane that lane i reads, -1 for its own. */
static int source_lane(int how, int i, uint32_t b, uint32_t c)
{
    const int segment = (int)(c >> 8 & 31), clamp = (int)(c & 31);
    const int most = (i & segment) | (clamp & ~segment);
    const int by = (int)(b & 31);
    int j;

    switch (how) {
    case UP:
        j = i - by;
        return j >= most ? j : -1;
    case DOWN:
        j = i + by;
        break;
    case BFLY:
        j = i ^ by;
        break;
    default:
        j = (i & segment) | (by & ~segment);
        break;
    }
    return j <= most ? j : -1;
}

static int shuffle(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t *from = PX_AT(w, uint32_t, 2), *b = PX_AT(w, uint32_t, 3);
    const uint32_t *c = PX_AT(w, uint32_t, 4);
    uint32_t out[PX_LANES], set = 0, *p = PX_AT(w, uint32_t, 1);

    PX_EACH (mask) {
        int j = source_lane(op->sub, i, b[i], c[i]);

        if (j >= 0)
            set |= 1u << i;
        else
            j = i;
        if (!(mask >> j & 1))
            return px_fault(w, op, i, "reads lane %d, which is not here", j);
        out[i] = from[j];
    }
    PX_EACH (mask)
        PX_AT(w, uint32_t, 0)[i] = out[i];
    if (op->vector)
        *p = (*p & ~mask) | set;
    return PX_NEXT;
}

static int setup_shuffle(struct px_build *b)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    char name[40];
    int both = b->noperands == 6;

    for (int i = UP; i <= IDX; i++) {
        snprintf(name, sizeof name, "shfl.sync.%s.b32", modes[i]);
        if (strcmp(name, b->mnemonic))
            continue;
        b->op->sub = (short)i;
        b->op->vector = (short)both;
        b->op->run = shuffle;
        b->op->meet = PX_MEET_MASK;
        if (px_give(b, 0, 'r') || px_give(b, both, both ? 'p' : 'r'))
            return PX_FAULT;
        for (int k = 1 + both; k < b->noperands; k++)
            if (px_give(b, k, 'r'))
                return PX_FAULT;
        return PX_EXIT;
    }
    return PX_NEXT;
}

/* ----------------------------------------------------------- vote and redux */

#define VOTE(name, value)                                                      \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        const uint32_t who = members(w, op, mask);                             \
        const uint32_t set = *PX_AT(w, uint32_t, 1) & who;                     \
        uint32_t *p = PX_AT(w, uint32_t, 0);                                   \
                                                                               \
        *p = (*p & ~mask) | ((value) ? mask : 0);                              \
        return PX_NEXT;                                                        \
    }
VOTE(vote_any, set)
VOTE(vote_all, set == who)

static int ballot(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t set = *PX_AT(w, uint32_t, 1) & members(w, op, mask);

    PX_EACH (mask)
        PX_AT(w, uint32_t, 0)[i] = set;
    return PX_NEXT;
}

#define REDUX(name, T, value)                                                  \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        const uint32_t who = members(w, op, mask);                             \
        const T *a = PX_AT(w, T, 1);                                           \
        T x = a[first_lane(who)];                                              \
                                                                               \
        PX_EACH (who &(who - 1)) {                                             \
            const T y = a[i];                                                  \
                                                                               \
            x = (T)(value);                                                    \
        }                                                                      \
        PX_EACH (mask)                                                         \
            PX_AT(w, T, 0)[i] = x;                                             \
        return PX_NEXT;                                                        \
    }
REDUX(redux_max_s32, int32_t, x > y ? x : y)
REDUX(redux_min_s32, int32_t, x < y ? x : y)
REDUX(redux_max_u32, uint32_t, x > y ? x : y)
REDUX(redux_min_u32, uint32_t, x < y ? x : y)
REDUX(redux_add, uint32_t, x + y)
REDUX(redux_or, uint32_t, x | y)
REDUX(redux_and, uint32_t, x &y)
REDUX(redux_xor, uint32_t, x ^ y)

static int match_any(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t who = members(w, op, mask), *a = PX_AT(w, uint32_t, 1);
    uint32_t out[PX_LANES];

    PX_EACH (mask) {
        out[i] = 0;
        for (int j = 0; j < PX_LANES; j++)
            out[i] |= (uint32_t)((who >> j & 1) && a[j] == a[i]) << j;
    }
    PX_EACH (mask)
        PX_AT(w, uint32_t, 0)[i] = out[i];
    return PX_NEXT;
}

/* elect.sync d|p, mask: always the same lane of a mask, but any. */
static int elect(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t who = members(w, op, mask);
    uint32_t *p = PX_AT(w, uint32_t, 1);
    int lane = (int)(px_machine.leader % PX_LANES);

    while (!(who >> lane & 1))
        lane = (lane + 1) % PX_LANES;
    PX_EACH (mask)
        PX_AT(w, uint32_t, 0)[i] = (uint32_t)lane;
    *p = (*p & ~mask) | (1u << lane & mask);
    return PX_NEXT;
}

static int active(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask)
        PX_AT(w, uint32_t, 0)[i] = mask;
    return PX_NEXT;
}

static int nothing(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)w, (void)op, (void)mask;
    return PX_NEXT;
}

/* The launches before have ended: one runs at a time. */
static int wait_for_launches(struct px_warp *w, const struct px_op *op,
                             uint32_t mask)
{
    (void)op;
    w->waited |= mask;
    return PX_NEXT;
}

/* setmaxnreg: what a warp leaves is there for those of its CTA that take. */
static int check_registers(struct px_warp *w, const struct px_op *op,
                           uint32_t count)
{
    if (!w->registers)
        return px_fault(w, op, 0, "the kernel has no .maxntid");
    if (count % 8 || count < 24 || count > 256)
        return px_fault(w, op, 0, "%u registers", count);
    return PX_NEXT;
}

static int take_registers(struct px_warp *w, const struct px_op *op,
                          uint32_t mask)
{
    const uint32_t count = PX_AT(w, uint32_t, 0)[first_lane(mask)];

    if (check_registers(w, op, count))
        return PX_FAULT;
    if (count < w->registers)
        return px_fault(w, op, 0, "takes %u registers and has %u", count,
                        w->registers);
    if (count - w->registers > w->cta->registers)
        return PX_WAIT;
    w->cta->registers -= count - w->registers;
    w->registers = count;
    return PX_NEXT;
}

static int leave_registers(struct px_warp *w, const struct px_op *op,
                           uint32_t mask)
{
    const uint32_t count = PX_AT(w, uint32_t, 0)[first_lane(mask)];

    if (check_registers(w, op, count))
        return PX_FAULT;
    if (count > w->registers)
        return px_fault(w, op, 0, "keeps %u registers of %u", count,
                        w->registers);
    w->cta->registers += w->registers - count;
    w->registers = count;
    px_machine.events++;
    return PX_NEXT;
}

static int yield(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)w, (void)op, (void)mask;
    return PX_YIELD;
}

static int end(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)w, (void)op, (void)mask;
    return PX_EXIT;
}

static int trap(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    return px_fault(w, op, first_lane(mask), "the kernel traps");
}

const struct px_row px_rows_warp[] = {
    {"vote.sync.any.pred", "ppr", vote_any, PX_MEET_MASK},
    {"vote.sync.all.pred", "ppr", vote_all, PX_MEET_MASK},
    {"vote.sync.ballot.b32", "rpr", ballot, PX_MEET_MASK},
    {"redux.sync.max.s32", "rrr", redux_max_s32, PX_MEET_MASK},
    {"redux.sync.min.s32", "rrr", redux_min_s32, PX_MEET_MASK},
    {"redux.sync.max.u32", "rrr", redux_max_u32, PX_MEET_MASK},
    {"redux.sync.min.u32", "rrr", redux_min_u32, PX_MEET_MASK},
    {"redux.sync.add.s32", "rrr", redux_add, PX_MEET_MASK},
    {"redux.sync.add.u32", "rrr", redux_add, PX_MEET_MASK},
    {"redux.sync.or.b32", "rrr", redux_or, PX_MEET_MASK},
    {"redux.sync.and.b32", "rrr", redux_and, PX_MEET_MASK},
    {"redux.sync.xor.b32", "rrr", redux_xor, PX_MEET_MASK},
    {"match.any.sync.b32", "rrr", match_any, PX_MEET_MASK},
    {"elect.sync", "rpr", elect, PX_MEET_MASK},
    {"activemask.b32", "r", active, 0},
    {"bar.warp.sync", "r", nothing, PX_MEET_MASK},
    {NULL, NULL, NULL, 0}};

const struct px_row px_rows_control[] = {
    {"ret", "", end, 0},
    {"exit", "", end, 0},
    {"trap", "", trap, 0},
    {"createpolicy.fractional.L2::evict_last.b64", "dr", nothing, 0},
    {"createpolicy.fractional.L2::evict_first.b64", "dr", nothing, 0},
    {"nanosleep.u32", "r", yield, 0},
    {"membar.gl", "", nothing, 0},
    {"membar.cta", "", nothing, 0},
    {"membar.sys", "", nothing, 0},
    {"fence.acq_rel.gpu", "", nothing, 0},
    {"fence.sc.gpu", "", nothing, 0},
    {"fence.acq_rel.cta", "", nothing, 0},
    {"fence.acq_rel.cluster", "", nothing, 0},
    {"fence.proxy.async", "", px_hazard_fence, 0},
    {"fence.proxy.async.global", "", px_hazard_fence, 0},
    {"fence.proxy.async.shared::cta", "", px_hazard_fence, 0},
    {"fence.mbarrier_init.release.cluster", "", nothing, 0},
    {"griddepcontrol.launch_dependents", "", nothing, 0},
    {"setmaxnreg.inc.sync.aligned.u32", "r", take_registers, PX_MEET_ALL},
    {"setmaxnreg.dec.sync.aligned.u32", "r", leave_registers, PX_MEET_ALL},
    {NULL, NULL, NULL, 0}};

int px_setup_warp(struct px_build *b)
{
    if (strcmp(b->mnemonic, "griddepcontrol.wait"))
        return setup_shuffle(b);
    b->op->run = wait_for_launches;
    b->program->waits = 1;
    return PX_EXIT;
}

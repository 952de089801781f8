/* SPDX-License-Identifier: Apache-2.0 */
/* tcgen05.c: allocations of tensor memory, waits, fences, commits. */
#include "build.h"
#include "hazard.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------- waits and fences */

static int wait_loads(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op, (void)mask;
    w->tensor->open_load = 0;
    px_hazard_waited(w);
    return PX_NEXT;
}

static int wait_stores(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op, (void)mask;
    w->tensor->open_store = 0;
    return PX_NEXT;
}

/* Others hear at a barrier of accesses that the warp has waited for by now. */
static int fence_before(struct px_warp *w, const struct px_op *op,
                        uint32_t mask)
{
    const struct px_tensor *t = w->tensor;
    uint32_t over = t->accesses;

    (void)op, (void)mask;
    if (t->open_load && t->open_load <= over)
        over = t->open_load - 1;
    if (t->open_store && t->open_store <= over)
        over = t->open_store - 1;
    px_order_tell(w, PX_OWN, over);
    return PX_NEXT;
}

static int fence_after(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op, (void)mask;
    px_order_fence(w);
    return PX_NEXT;
}

/* -------------------------------------------------------------- allocation */

static int is_free(const struct px_tmem *t, uint32_t first, uint32_t columns)
{
    for (uint32_t i = first; i < first + columns; i++)
        if (i >= PX_COLUMNS || t->taken[i])
            return 0;
    return 1;
}

static int check_columns(struct px_warp *w, const struct px_op *op,
                         uint32_t columns)
{
    if (columns < 32 || columns > PX_COLUMNS || columns & (columns - 1))
        return px_fault(w, op, 0,
                        "%u columns; allocations have 32, 64, 128, 256, 512",
                        columns);
    return PX_NEXT;
}

/* Any multiple of 32 columns: a CTA of another kernel may have those before.
   The same in both CTAs of a pair. */
static uint32_t find_columns(const struct px_cta *cta, uint32_t columns)
{
    const uint32_t *id = cta->cluster->cta[cta->rank & ~1].id;
    uint32_t state = px_machine.leader + id[0] + 64 * id[1] + 4096 * id[2];
    uint32_t first = px_random(&state) % (PX_COLUMNS / 32) * 32;

    for (int i = 0; i < PX_COLUMNS / 32; i++, first = (first + 32) % PX_COLUMNS)
        if (is_free(cta->tmem, first, columns))
            return first;
    return PX_COLUMNS;
}

/* alloc [to], columns: writes the address to shared memory. */
static int allocate(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t columns = PX_AT(w, uint32_t, 1)[0];
    struct px_tmem *t = w->cta->tmem;
    const uint32_t first = find_columns(w->cta, columns);
    unsigned char *to;

    (void)mask;
    if (check_columns(w, op, columns))
        return PX_FAULT;
    if (t->is_relinquished)
        return px_fault(w, op, 0,
                        "allocates after tcgen05.relinquish_alloc_permit");
    to = px_memory_at(w, op, op->space, px_address(w, op, 0, 0), 4, 0);
    if (!to)
        return PX_FAULT;
    if (first == PX_COLUMNS)
        return PX_WAIT;
    if (t->nallocations == PX_ALLOCATIONS)
        return px_fault(w, op, 0, "more than %d allocations", PX_ALLOCATIONS);
    t->allocation[t->nallocations].first = first;
    t->allocation[t->nallocations].columns = columns;
    t->allocation[t->nallocations++].warp = w->number;
    memset(t->taken + first, 1, columns);
    memset(t->word[first], 0xff, columns * sizeof *t->word);
    memset(t->written[first], 0, columns * sizeof *t->written);
    memset(t->used + first, 0, columns * sizeof *t->used);
    memset(t->read + first * (uint32_t)w->cta->nwarps, 0,
           columns * (size_t)w->cta->nwarps * sizeof *t->read);
    px_machine.clock++;
    px_hazard_written(w, to, 4, 0);
    memcpy(to, &first, sizeof first);
    return PX_NEXT;
}

static int deallocate(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t first = PX_AT(w, uint32_t, 0)[0];
    const uint32_t columns = PX_AT(w, uint32_t, 1)[0];
    struct px_tmem *t = w->cta->tmem;

    (void)mask;
    for (int i = 0; i < t->nallocations; i++) {
        if (t->allocation[i].first != first ||
            t->allocation[i].columns != columns)
            continue;
        memset(t->taken + first, 0, columns);
        t->allocation[i] = t->allocation[--t->nallocations];
        px_machine.events++;
        return PX_NEXT;
    }
    return px_fault(w, op, 0, "%u columns from 0x%08x on are no allocation",
                    columns, first);
}

static int relinquish(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op, (void)mask;
    w->cta->tmem->is_relinquished = 1;
    return PX_NEXT;
}

int px_tmem_check_end(const struct px_warp *w)
{
    const struct px_tmem *t = w->cta->tmem;

    if (t && t->nallocations)
        return px_fault_plain(
            "%s: CTA (%u,%u,%u) ends with %u columns of tensor memory that "
            "warp %d allocated",
            px_machine.launch->program->name, w->cta->id[0], w->cta->id[1],
            w->cta->id[2], t->allocation[0].columns, t->allocation[0].warp);
    return PX_NEXT;
}

/* ----------------------------------------------- products, copies, commits */

struct px_async *px_tensor_issue(struct px_warp *w, const struct px_op *op,
                                 int lane, int (*land)(struct px_async *),
                                 size_t work_bytes)
{
    struct px_async *async = px_async_add(w, op, lane, land);

    if (!async)
        return NULL;
    async->queue = &w->tensor->landed[lane];
    async->order = ++w->tensor->issued[lane];
    async->work = calloc(1, work_bytes);
    if (!async->work) {
        px_fault_plain("out of memory");
        return NULL;
    }
    return async;
}

void px_tensor_count(struct px_warp *w, int lane)
{
    struct px_tensor *t = w->tensor;

    t->products++;
    if (!t->open[lane])
        t->open[lane] = t->products;
}

struct px_cta *px_tensor_cta(struct px_warp *w, const struct px_op *op,
                             int lane, int ctas, int half)
{
    struct px_cluster *cluster = w->cta->cluster;
    const int rank = w->cta->rank + half;

    if (ctas == 1)
        return w->cta;
    if (w->cta->rank & 1) {
        px_fault(w, op, lane, "the odd CTA of a pair issues it");
        return NULL;
    }
    if (rank >= cluster->size) {
        px_fault(w, op, lane, "the cluster has no pair of CTAs");
        return NULL;
    }
    if (!cluster->cta[rank].live_warps) {
        px_fault(w, op, lane, "the other CTA of the pair has ended");
        return NULL;
    }
    return &cluster->cta[rank];
}

/* A commit has barriers, and all that its warp had heard. */
struct commit {
    uint32_t barrier, ranks; /* in these CTAs of the cluster */
    uint32_t heard[];
};

/* One barrier after the other. */
static int land_commit(struct px_async *async)
{
    struct commit *commit = async->work;
    const uint32_t rank = (uint32_t)__builtin_ctz(commit->ranks);

    commit->ranks &= commit->ranks - 1;
    if (px_barrier_arrive(async->warp, async->op,
                          (rank + PX_FIRST_RANK) << PX_RANK_SHIFT |
                              commit->barrier,
                          async->lane, commit->heard))
        return PX_FAULT;
    return commit->ranks ? PX_WAIT : PX_NEXT;
}

/* Up to where all products of the warp are this lane's, or were committed. */
static uint32_t committed(struct px_tensor *t, int lane)
{
    uint32_t number = t->products;

    for (int i = 0; i < PX_LANES; i++)
        if (i != lane && t->open[i] && t->open[i] <= number)
            number = t->open[i] - 1;
    t->open[lane] = 0;
    return number;
}

/* [barrier] (, ranks) */
static int commit_lane(struct px_warp *w, const struct px_op *op, int i)
{
    const uint64_t address = px_address(w, op, 0, i);
    const uint32_t own = (uint32_t)w->cta->rank;
    const uint32_t rank = (uint32_t)address >> PX_RANK_SHIFT & 31;
    uint32_t ranks = op->nargs > 1 ? PX_AT(w, uint32_t, 1)[i] & 0xffff
                                   : 1u << (rank ? rank - PX_FIRST_RANK : own);
    const size_t bytes = px_order_bytes(w);
    struct px_async *async =
        px_tensor_issue(w, op, i, land_commit, sizeof(struct commit) + bytes);
    struct commit *commit = async ? async->work : NULL;

    if (!async)
        return PX_FAULT;
    if (!ranks || ranks >> w->cta->cluster->size)
        return px_fault(w, op, i, "ranks 0x%x of a cluster of %d", ranks,
                        w->cta->cluster->size);
    commit->barrier = (uint32_t)address & ((1u << PX_RANK_SHIFT) - 1);
    commit->ranks = ranks;
    px_order_copy(w, commit->heard, committed(w->tensor, i));
    return PX_NEXT;
}

static int commit_products(struct px_warp *w, const struct px_op *op,
                           uint32_t mask)
{
    PX_EACH (mask)
        if (commit_lane(w, op, i))
            return PX_FAULT;
    return PX_NEXT;
}

/* -------------------------------------------------------------------- names */

static const struct {
    const char *name, *types; /* 'a': an address of either size */
    int (*run)(struct px_warp *, const struct px_op *, uint32_t);
    char meet;
} plain[] =
    {
        {"tcgen05.wait::ld.sync.aligned", "", wait_loads, PX_MEET_ALL},
        {"tcgen05.wait::st.sync.aligned", "", wait_stores, PX_MEET_ALL},
        {"tcgen05.fence::before_thread_sync", "", fence_before, 0},
        {"tcgen05.fence::after_thread_sync", "", fence_after, 0},
},
  grouped[] = {
      {"tcgen05.alloc.sync.aligned.shared::cta.b32", "ar", allocate,
       PX_MEET_ALL},
      {"tcgen05.alloc.sync.aligned.b32", "ar", allocate, PX_MEET_ALL},
      {"tcgen05.dealloc.sync.aligned.b32", "rr", deallocate, PX_MEET_ALL},
      {"tcgen05.relinquish_alloc_permit.sync.aligned", "", relinquish,
       PX_MEET_ALL},
      {"tcgen05.commit.mbarrier::arrive::one.b64", "a", commit_products, 0},
      {"tcgen05.commit.mbarrier::arrive::one.shared::cluster.b64", "a",
       commit_products, 0},
      {"tcgen05.commit.mbarrier::arrive::one.shared::cluster.multicast::"
       "cluster."
       "b64",
       "ar", commit_products, 0},
      {"tcgen05.commit.mbarrier::arrive::one.multicast::cluster.b64", "ar",
       commit_products, 0},
};

/* The name without .cta_group::N, which all of a kernel have alike. */
static int take_group(struct px_build *b, char *name)
{
    static const char word[] = ".cta_group::";
    char *at = strstr(name, word);
    int group;

    if (!at)
        return px_bad(b, "has no .cta_group");
    group = at[sizeof word - 1] - '0';
    memmove(at, at + sizeof word, strlen(at + sizeof word) + 1);
    if (b->program->tensor && b->program->tensor != group)
        return px_bad(b, "another .cta_group than the kernel's others");
    b->program->tensor = group;
    return group == 1 || group == 2 ? PX_NEXT : px_bad(b, "no such .cta_group");
}

static int give_all(struct px_build *b, const char *types)
{
    if (strlen(types) != (size_t)b->noperands)
        return px_bad(b, "has another count of operands");
    for (int k = 0; k < b->noperands; k++)
        if (types[k] == 'a' ? px_give_address(b, k) : px_give(b, k, types[k]))
            return PX_FAULT;
    return PX_EXIT;
}

static int setup_plain(struct px_build *b)
{
    static const char load[] = "tcgen05.ld.sync.aligned.";
    static const char store[] = "tcgen05.st.sync.aligned.";
    const char *name = b->mnemonic;

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(name, plain[i].name)) {
            b->op->run = plain[i].run;
            b->op->meet = plain[i].meet;
            return give_all(b, plain[i].types);
        }
    if (!strncmp(name, load, sizeof load - 1))
        return px_setup_tensor_access(b, name + sizeof load - 1, 0);
    if (!strncmp(name, store, sizeof store - 1))
        return px_setup_tensor_access(b, name + sizeof store - 1, 1);
    return PX_NEXT;
}

int px_setup_tensor(struct px_build *b)
{
    static const char product[] = "tcgen05.mma.", copy[] = "tcgen05.cp.";
    char name[200];
    int code;

    if (strncmp(b->mnemonic, "tcgen05.", 8))
        return PX_NEXT;
    code = setup_plain(b);
    if (code != PX_NEXT)
        return code;
    snprintf(name, sizeof name, "%s", b->mnemonic);
    if (take_group(b, name))
        return PX_FAULT;
    if (!strncmp(name, product, sizeof product - 1))
        return px_setup_tensor_product(b, name + sizeof product - 1);
    if (!strncmp(name, copy, sizeof copy - 1))
        return px_setup_tensor_copy(b, name + sizeof copy - 1);
    for (size_t i = 0; i < sizeof grouped / sizeof *grouped; i++)
        if (!strcmp(name, grouped[i].name)) {
            b->op->run = grouped[i].run;
            b->op->meet = grouped[i].meet;
            b->op->space = strstr(name, "shared::cta") ? 's' : 'a';
            return give_all(b, grouped[i].types);
        }
    return PX_NEXT;
}

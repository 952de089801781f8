/* SPDX-License-Identifier: Apache-2.0 */
/*
** The twin of templates/sm90/ptx.cu, wgmma.cu and store_*.cu for the host: barriers, copies and
** products that keep labels instead of numbers, so that the kernel's own text runs as plain C and
** every use of a stale stage, slab, scale or sum shows.
**
** Each CUDA thread is a coroutine. One cluster runs at a time. A primitive that must wait yields
** until its condition holds; when a whole round changes nothing, the kernel is in a deadlock.
** Copies land late and products read late, as late as the kernel's own waits allow: that is when
** a missing wait would show.
**
** The generator says before it how many steps of k are promoted (SIM_PROMOTE), or 0; whether sums
** are stored from elsewhere than where they are made (SIM_VALUED); what room a stage's scales
** have (SIM_SF_BYTES), and B's scales of the steps ahead (SIM_AHEAD_BYTES); and, of kernels that
** dequantize, how packed stages and slots of scales are.
*/
#include "launch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef unsigned long long u64;
typedef struct twin_map tensor_map;

enum {
    SIM_THREADS = THREADS * CTAS,
    SIM_STACK = 48 * 1024,
    SIM_SHARED = 1040, /* where dynamic shared memory begins: not at a multiple of 1024 */
    SIM_STAGES = 2048, /* where the stages must begin, then */
    SIM_GRAIN = 1024,  /* 8 rows of 128 bytes, the least that swizzling needs */
    SIM_GRAINS = STAGES * SIM_SPAN * STAGE_BYTES / SIM_GRAIN,
    SIM_COPIES = 512,
    SIM_FIRST_SLAB = SIM_STAGES + STAGES * SIM_SPAN * STAGE_BYTES,
    SIM_PARTS = SLAB_ROWS / 16,
    SIM_PART_BYTES = SLAB_BYTES / SIM_PARTS, /* of a slab, which one warp fills */
    SIM_SLABS = ALL_SLABS_BYTES / SIM_PART_BYTES, /* parts of slabs, all of them */
    SIM_FIRST_NUMBER = SIM_FIRST_SLAB + ALL_SLABS_BYTES,
    SIM_VALUES = SIM_VALUE_STAGES * SIM_VALUE_BYTES / SIM_GRAIN,
    SIM_FIRST_SCALE = SIM_FIRST_NUMBER + SIM_VALUES * SIM_GRAIN,
    SIM_SCALES = STAGES * SIM_SF_BYTES / 4,
    SIM_FIRST_AHEAD = SIM_FIRST_SCALE + STAGES * SIM_SF_BYTES,
    SIM_FIRST_BARRIER = SIM_FIRST_AHEAD + SIM_AHEAD_BYTES + SIM_PACKED_BYTES + SIM_WORDS_BYTES,
    SIM_PACKED_STEPS = SIM_PACKED_BYTES / SIM_PACKED_STEP,
    /* slabs' only where C is fetched */
    SIM_BARRIERS = 2 * STAGES + 2 * SIM_PACKED_STEPS / SIM_SPAN + 2 * SIM_VALUE_STAGES +
                   SIM_SLABS + 2 * QUEUE,
    SIM_WORDS = 2 * SIM_BARRIERS + QUEUE * SLOT_BYTES / 4 + SIM_MARKED,
    SIM_BATCHES = 4,
    /* rows that are in registers, if any are, and those next to them */
    SIM_HELD = SIM_SWAPPED ? COLUMNS : ROWS,
    SIM_ACROSS = SIM_SWAPPED ? ROWS : COLUMNS,
    SIM_SUMS = SIM_HELD / 64 * (SIM_ACROSS / MMA_N), /* that one product each goes into */
    SIM_HANDS = SIM_HELD / 16 > 2 ? SIM_HELD / 16 : 2, /* of two steps */
    SIM_WORDS_COPIED = 64,
    SIM_TOUCHES = (TILE_M + TILE_N) / 128 + 1,
    SIM_PRODUCTS = TILE_K / MMA_K * SIM_SUMS
};

/* The position of a box in its operand, and how much of it is inside the map. */
struct sim_place { int group, row, column, rows, columns; };

/* The contents of 8 rows of 128 bytes in shared memory; rows and columns after
   `place`'s are zero. */
struct sim_grain {
    int valid, role;
    struct sim_place place;
    uint64_t filled, fenced; /* by threads: 8 bits for each row */
};

struct sim_barrier { int count, pending, bytes; unsigned int phase; };

/* A row of a packed stage. */
struct sim_packed { struct sim_grain *grain; int role, row, byte; struct sim_place place; };

/* A word of scales, and a copy of one on its way. */
struct sim_slot { unsigned int value; int valid, owner; };
struct sim_word { struct sim_slot *slot; unsigned int value; int batch; };
struct sim_touch { struct sim_grain *grain; uint64_t filled; };

/* The products of a sum of 64 rows. */
struct sim_label {
    const float *sum;
    int k, steps;  /* first k of a stretch, how many in it */
    int real;      /* those before the zeros past the end */
    int first, before; /* k of the first stretch; real steps in those before this one */
    int row, a_group, column, b_group, across; /* across: columns of its products */
};

/* A word of the scales next to the stages. */
struct sim_scale { float value; int valid; };

/* The sums of 16 rows: a slab, or the part of it that one warp fills. They have
   values where sim_has_values. For sums that move on only the values tell
   their products. */
enum sim_c { SIM_NO_C, SIM_C_ON_ITS_WAY, SIM_C_IS_THERE };
struct sim_slab {
    unsigned int version; /* counts the lanes that filled it */
    unsigned int fenced;  /* counts those that then let the copy engine see it */
    enum sim_c c;         /* fetched, and not yet stored */
    struct sim_label label;
    float value[16][SLAB_COLUMNS];
};

/* Some rows of an operand and MMA_K steps of k of them. */
struct sim_part { int mn, k, real, group; };

struct sim_product {
    float *sum;
    unsigned int a, b;
    int accumulate;
    struct sim_part from_registers;
    int columns; /* of the product */
};
struct sim_batch { struct sim_product product[SIM_PRODUCTS]; int count; };
struct sim_store { unsigned int from, version; struct sim_place place; int role, add, again; };

struct sim_thread {
    void *resume[5];
    ucontext_t start;
    int started;
    uint64_t issued; /* of the products: a warp must issue them as one */
    struct sim_slab *filled[SLABS]; /* since the last fence */
    int fills;
    int in_flight; /* batches of products, of this lane */
    struct sim_label made[SIM_SUMS]; /* by the products last waited for */
    int noted;    /* it has read a slot that its warp does not know yet */
    int promoted; /* real steps in parts, since a tile was announced */
    unsigned int tile[4], as; /* of the last slot: group, start, length, row; the tile's type */
    struct sim_packed hand[SIM_HANDS]; /* rows that it dequantizes, the last one first */
    int products; /* since the last batch */
    struct sim_word word[SIM_WORDS_COPIED];
    int words, batch;
    struct sim_touch touch[SIM_TOUCHES]; /* since the last fence */
    int touches;
};

/* A thread waits until a word is no longer `held`; NULL: it does not wait. */
struct sim_watch { const unsigned int *word; unsigned int held; };

/* A warp, and the operations that its first lane has started for it. */
struct sim_warp {
    uint64_t value[2][32];
    int arrived;
    unsigned int generation;
    struct sim_label made[2][SIM_SUMS]; /* as `value`, by the parity of the generation */
    struct sim_batch batch[SIM_BATCHES];
    int batches; /* committed, not yet read */
    struct sim_label label[SIM_SUMS];
    int labels;
    struct sim_store store[SLABS + 1];
    int stores;
};

struct sim_cta {
    struct sim_barrier barrier[SIM_BARRIERS];
    unsigned int word[SIM_WORDS]; /* the tile queue's slots */
    unsigned int ahead[SIM_AHEAD_BYTES / 4 + 1];
    struct sim_grain grain[SIM_GRAINS];
    struct sim_grain number[SIM_VALUES + 1]; /* of A, 64 of 8 rows */
    struct sim_slab slab[SIM_SLABS];
    struct sim_scale scale[SIM_SCALES + 1];
    struct sim_grain packed[SIM_PACKED_STEPS * ((TILE_M + TILE_N) / 8) + 1];
    struct sim_slot slot[SIM_WORDS_BYTES / 4 + 1];
    struct sim_warp warp[THREADS / 32];
    struct { int arrived, threads; unsigned int generation; } named[16];
};

struct sim_copy {
    int cta, role, rows, bytes;
    u64 address; /* of the rows that it is a part of */
    unsigned int to, barrier;
    struct sim_place place;
    const tensor_map *scales; /* instead of the operand's values */
    int values;               /* likewise */
    int source;               /* CTA that gives its own shared memory, or -1 */
};

/* The whole simulated launch. */
static struct {
    struct sim_thread thread[SIM_THREADS];
    struct sim_watch watch[SIM_THREADS];
    struct sim_cta cta[CTAS];
    struct sim_copy copy[SIM_COPIES];
    int copies;
    int left[CTAS]; /* threads of each CTA that have ended */
    void *scheduler[5];
    int current;         /* running thread */
    int turns;           /* of threads, until this round ends */
    unsigned int late;   /* how many rounds a copy takes, about */
    int uneven;          /* some threads have more turns than others */
    unsigned long moved; /* changes whenever anything happens */
    uint64_t random;
    int cluster_arrived;
    unsigned int cluster_generation;
    unsigned int block, grid;
    const struct twin_launch *launch;
    char error[200];
} sim;

static unsigned char dynamic[1]; /* stands for the kernel's shared memory */

struct sim_index { unsigned int x; };
static struct sim_index sim_thread_index(void)
{
    return (struct sim_index){ (unsigned int)(sim.current % THREADS) };
}
static struct sim_index sim_block_index(void)
{
    return (struct sim_index){ sim.block + (unsigned int)(sim.current / THREADS) };
}
#define threadIdx sim_thread_index()
#define blockIdx sim_block_index()
#define gridDim ((struct sim_index){ sim.grid })
#define FN static __attribute__((unused))
#define __global__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(threads, blocks)
#define asm /* griddepcontrol: one launch runs at a time */
#define volatile(...)

static unsigned int sim_draw(unsigned int below)
{
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned int)(sim.random >> 33) % below;
}

static void sim_yield(void);

/* Record the first thing that is wrong, and stop this thread for good. */
static void sim_fail(const char *what, long long x, long long y)
{
    if (!sim.error[0])
        snprintf(sim.error, sizeof sim.error, "thread %d of block %u: %s (%lld, %lld)",
                 sim.current % THREADS, blockIdx.x, what, x, y);
    for (;;)
        sim_yield();
}

static struct sim_cta *sim_cta(void) { return &sim.cta[sim.current / THREADS]; }
static struct sim_warp *sim_warp(void) { return &sim_cta()->warp[sim.current % THREADS / 32]; }

/* ------------------------------------------------------- coroutines */

__attribute__((noinline)) static void sim_resume(struct sim_thread *t)
{
    if (!t->started) {
        t->started = 1;
        setcontext(&t->start);
    }
    __builtin_longjmp(t->resume, 1);
}

/* Go on with the next thread that can go on, or with the scheduler when all had their turn. */
__attribute__((noinline)) static void sim_switch(void)
{
    while (sim.turns > 0) {
        const struct sim_watch *w;

        sim.turns--;
        sim.current = sim.current + 1 < SIM_THREADS ? sim.current + 1 : 0;
        w = &sim.watch[sim.current];
        if (!w->word || *w->word != w->held)
            sim_resume(&sim.thread[sim.current]);
    }
    __builtin_longjmp(sim.scheduler, 1);
}

__attribute__((noinline)) static void sim_yield(void)
{
    if (__builtin_setjmp(sim.thread[sim.current].resume) == 0)
        sim_switch();
}

/* The next so many threads, from any of them on: those that can go on do so once. */
__attribute__((noinline)) static void sim_round(int threads)
{
    sim.turns = threads;
    sim.current = (int)sim_draw(SIM_THREADS);
    if (__builtin_setjmp(sim.scheduler) == 0)
        sim_switch();
}

/* Let the others go first, once. */
static void sim_pause(void)
{
    sim.moved++;
    sim_yield();
}

/* Wait while a word keeps its value; the scheduler looks at it. */
static void sim_wait(const unsigned int *word, unsigned int held)
{
    struct sim_watch *w = &sim.watch[sim.current];

    if (*word != held)
        return;
    *w = (struct sim_watch){ word, held };
    sim_yield();
    w->word = NULL;
}

static void sim_enter(void);

static void sim_start(void)
{
    static const unsigned int never;

    sim_enter();
    sim.watch[sim.current] = (struct sim_watch){ &never, 0 };
    sim.left[sim.current / THREADS]++;
    sim.moved++;
    sim_switch();
}

/* --------------------------------------------------------- barriers */

static struct sim_barrier *sim_barrier_at(int cta, unsigned int address)
{
    const unsigned int first = SIM_FIRST_BARRIER;
    const unsigned int i = (address - first) / 8;

    if (address < first || (address - first) % 8 || i >= SIM_BARRIERS ||
        (int)address + 8 > SIM_SHARED + sim.launch->smem)
        sim_fail("no barrier at this address", address, i);
    return &sim.cta[cta].barrier[i];
}

static void sim_barrier_settle(struct sim_barrier *b)
{
    sim.moved++;
    if (b->pending == 0 && b->bytes == 0) {
        b->phase ^= 1;
        b->pending = b->count;
    }
}

static unsigned int shared_address(const void *p)
{
    (void)p;
    return SIM_SHARED;
}

/* One that has been made. */
static struct sim_barrier *sim_barrier_of(int cta, unsigned int address)
{
    struct sim_barrier *b = sim_barrier_at(cta, address);

    if (b->count == 0)
        sim_fail("a barrier is used before it is made", address, 0);
    return b;
}

static void barrier_init(unsigned int barrier, unsigned int count)
{
    *sim_barrier_at(sim.current / THREADS, barrier) =
        (struct sim_barrier){ (int)count, (int)count, 0, 0 };
    sim.moved++;
}

static void barrier_init_fence(void) {}

static void prefetch_map(const tensor_map *map) { (void)map; }

static void barrier_expect(unsigned int barrier, unsigned int bytes)
{
    struct sim_barrier *b = sim_barrier_of(sim.current / THREADS, barrier);
    b->bytes += (int)bytes;
    b->pending--;
    sim_barrier_settle(b);
}

static void barrier_arrive_at(unsigned int barrier, unsigned int rank)
{
    struct sim_barrier *b = sim_barrier_of((int)rank, barrier);
    if (b->pending == 0)
        sim_fail("one arrival too many", barrier, rank);
    if (sim.left[rank] == THREADS)
        sim_fail("arrival at a CTA that has left", barrier, rank);
    b->pending--;
    sim_barrier_settle(b);
}

static void barrier_arrive(unsigned int barrier)
{
    barrier_arrive_at(barrier, (unsigned int)(sim.current / THREADS));
}

static void barrier_wait(unsigned int barrier, unsigned int parity)
{
    if (parity > 1)
        sim_fail("a parity is 0 or 1", parity, 0);
    sim_wait(&sim_barrier_of(sim.current / THREADS, barrier)->phase, parity);
    sim.moved++;
}

/* Every lane gives a value; returns all 32. */
static const uint64_t *sim_gather(uint64_t value)
{
    struct sim_warp *w = sim_warp();
    const unsigned int mine = w->generation;

    w->value[mine & 1][sim.current % 32] = value;
    sim.moved++;
    if (++w->arrived == 32) {
        w->arrived = 0;
        w->generation++;
    }
    sim_wait(&w->generation, mine);
    return w->value[mine & 1];
}

/* ---------------------------------------------------------- threads */

static void registers_release(int count) { (void)count; }
static void registers_take(int count) { (void)count; }
static unsigned int cluster_rank(void) { return (unsigned int)(sim.current / THREADS); }
static int elect_lane(void) { return sim.current % 32 == 0; }

static void sim_named(int barrier, int threads, int waits)
{
    unsigned int *generation = &sim_cta()->named[barrier].generation;
    const unsigned int mine = *generation;

    if (sim_cta()->named[barrier].arrived && sim_cta()->named[barrier].threads != threads)
        sim_fail("threads that disagree on who meets at a barrier", barrier, threads);
    sim_cta()->named[barrier].threads = threads;
    sim.moved++;
    if (++sim_cta()->named[barrier].arrived == threads) {
        sim_cta()->named[barrier].arrived = 0;
        ++*generation;
    }
    if (waits)
        sim_wait(generation, mine);
}

static void named_wait(int barrier, int threads) { sim_named(barrier, threads, 1); }
static void named_arrive(int barrier, int threads) { sim_named(barrier, threads, 0); }
static void __syncthreads(void) { sim_named(0, THREADS, 1); }

static void cluster_sync(void)
{
    const unsigned int mine = sim.cluster_generation;

    sim.moved++;
    if (++sim.cluster_arrived == SIM_THREADS) {
        sim.cluster_arrived = 0;
        sim.cluster_generation++;
    }
    sim_wait(&sim.cluster_generation, mine);
}

/* Once the first lane has read a slot, all know its tile. */
static void __syncwarp(void)
{
    struct sim_thread *t = &sim.thread[sim.current];
    const uint64_t noted = (uint64_t)t->noted;

    t->noted = 0;
    if (sim_gather(noted)[0]) {
        memcpy(t->tile, sim.thread[sim.current / 32 * 32].tile, sizeof t->tile);
        t->as = sim.thread[sim.current / 32 * 32].as;
        t->promoted = 0;
    }
}

static unsigned int __shfl_sync(unsigned int mask, unsigned int value, int from)
{
    (void)mask;
    return (unsigned int)sim_gather(value)[from & 31];
}

static unsigned int __shfl_up_sync(unsigned int mask, unsigned int value, int distance)
{
    const int lane = sim.current % 32;
    (void)mask;
    return (unsigned int)sim_gather(value)[lane < distance ? lane : lane - distance];
}

static unsigned int __ballot_sync(unsigned int mask, int set)
{
    const uint64_t *all = sim_gather(set != 0);
    unsigned int ballot = 0;
    (void)mask;
    for (int i = 0; i < 32; i++)
        ballot |= (unsigned int)all[i] << i;
    return ballot;
}

static int uniformly(int condition)
{
    const uint64_t *all = sim_gather(condition != 0);
    for (int i = 1; i < 32; i++)
        if (all[i] != all[0])
            sim_fail("a condition that should be the same in all lanes is not", i, 0);
    return condition != 0;
}

static int halved(int value) { return value / 2; }
static int uniform(int value)
{
    if ((int)__shfl_sync(~0u, (unsigned int)value, 0) != value)
        sim_fail("a value that should be the same in all lanes is not", value, 0);
    return value;
}

static int afresh(int number) { return number; }
static __attribute__((unused)) int lane_again(void) { return (int)(threadIdx.x % 32); }
static int __ffs(unsigned int x) { return __builtin_ffs((int)x); }

#include "shim_words.h"
#include "shim_scale.h"
#include "shim_copy.h"
#include "shim_narrow.h"
#include "shim_dequantize.h"
#include "shim_store.h"

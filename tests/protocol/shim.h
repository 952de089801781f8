/*
** The twin of templates/sm90/ptx.cu, wgmma.cu and store_*.cu for the host: barriers, copies and
** products that keep labels instead of numbers, so that the kernel's own text runs as plain C and
** every use of a stale stage, slab or sum shows.
**
** Each CUDA thread is a coroutine. One cluster runs at a time. A primitive that must wait yields
** until its condition holds; when a whole round changes nothing, the kernel is in a deadlock.
** Copies land late and products read late, as late as the kernel's own waits allow: that is when
** a missing wait would show.
*/
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef unsigned long long u64;
typedef struct { int operand; } tensor_map; /* 'a', 'b', 'd', or 'r' for D's ragged one */

enum { SIM_THREADS = THREADS * CLUSTER_N, SIM_STACK = 48 * 1024, SIM_COPIES = 64,
       SIM_BARRIERS = 2 * STAGES, SIM_SLABS = 8 * SLABS, SIM_BATCHES = 4,
       SIM_PRODUCTS = TILE_K / 16 * (ROWS / 64) };

/* What a box in shared memory holds. */
struct sim_box {
    int valid, operand;
    int x, row, group; /* k, first row; group for B */
};

struct sim_barrier { int count, pending, bytes; unsigned int phase; };

struct sim_slab { int valid, steps, row, group, column; unsigned int version; };

struct sim_product { float *sum; unsigned int a, b; int accumulate; };

struct sim_store { unsigned int from; int x, row, limit; unsigned int version; };

struct sim_thread {
    void *resume[5];
    ucontext_t start;
    int started, done, index; /* index in the cluster */
    struct { struct sim_product product[SIM_PRODUCTS]; int count; } batch[SIM_BATCHES];
    int batches; /* committed, not yet read */
    struct sim_store store[SLABS + 1];
    int stores;
};

struct sim_warp { uint64_t value[2][32]; int arrived; unsigned int generation; };

struct sim_cta {
    struct sim_barrier barrier[SIM_BARRIERS];
    struct sim_box a[STAGES][CLUSTER_N], b[STAGES];
    struct sim_slab slab[SIM_SLABS];
    struct sim_warp warp[THREADS / 32];
    struct { int arrived; unsigned int generation; } named[16];
};

struct sim_copy { int cta; unsigned int to, barrier; struct sim_box box; int bytes; };

/* The whole simulated launch. */
static struct {
    struct sim_thread thread[SIM_THREADS];
    struct sim_cta cta[CLUSTER_N];
    struct sim_copy copy[SIM_COPIES];
    int copies;
    int left[CLUSTER_N]; /* threads of each CTA that have ended */
    void *scheduler[5];
    int current;         /* running thread */
    unsigned long moved; /* changes whenever anything happens */
    uint64_t random;
    int cluster_arrived;
    unsigned int cluster_generation;
    /* the launch */
    unsigned int block, grid;
    void (*entry)(void);
    /* the result */
    char error[200];
    int n, k, m;
    unsigned char *written;  /* m x slab columns: how often each row was stored */
    const int *group_of_row; /* m, -1 for rows outside; NULL where sizes lie */
} sim;

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
#define DEVICE static __attribute__((unused))
#define __global__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(threads, blocks)

static unsigned int sim_draw(unsigned int below)
{
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned int)(sim.random >> 33) % below;
}

static void sim_yield(void);

/* Record the first thing that is wrong, and stop this thread for good. */
static void sim_fail(const char *what, int x, int y)
{
    if (!sim.error[0])
        snprintf(sim.error, sizeof sim.error, "thread %d of block %u: %s (%d, %d)",
                 sim.current % THREADS, blockIdx.x, what, x, y);
    for (;;)
        sim_yield();
}

static struct sim_cta *sim_cta(void) { return &sim.cta[sim.current / THREADS]; }

/* ------------------------------------------------------- coroutines */

static void sim_switch_back(void)
{
    __builtin_longjmp(sim.scheduler, 1);
}

__attribute__((noinline)) static void sim_yield(void)
{
    if (__builtin_setjmp(sim.thread[sim.current].resume) == 0)
        sim_switch_back();
}

static void sim_enter(void)
{
    sim.entry();
    sim.thread[sim.current].done = 1;
    sim.left[sim.current / THREADS]++;
    sim.moved++;
    sim_switch_back();
}

__attribute__((noinline)) static void sim_resume(struct sim_thread *t)
{
    if (!t->started) {
        t->started = 1;
        setcontext(&t->start);
    }
    __builtin_longjmp(t->resume, 1);
}

__attribute__((noinline)) static void sim_step(int index)
{
    sim.current = index;
    if (__builtin_setjmp(sim.scheduler) == 0)
        sim_resume(&sim.thread[index]);
}

/* ----------------------------------------------------------- copies */

static int sim_barrier_index(unsigned int address)
{
    const unsigned int first = 1024 + STAGES * (A_BYTES + B_BYTES) + 8 * SLABS * SLAB_BYTES;
    const unsigned int i = (address - first) / 8;
    if (address < first || (address - first) % 8 || i >= SIM_BARRIERS)
        sim_fail("no barrier at this address", (int)address, (int)i);
    return (int)i;
}

static void sim_barrier_settle(struct sim_barrier *b)
{
    sim.moved++;
    if (b->pending == 0 && b->bytes == 0) {
        b->phase ^= 1;
        b->pending = b->count;
    }
}

static void sim_land(const struct sim_copy *c)
{
    struct sim_cta *cta = &sim.cta[c->cta];
    struct sim_barrier *barrier = &cta->barrier[sim_barrier_index(c->barrier)];
    const unsigned int offset = c->to - 1024;

    if (c->box.operand == 'a')
        cta->a[offset / A_BYTES][offset % A_BYTES / (A_BYTES / CLUSTER_N)] = c->box;
    else
        cta->b[(offset - STAGES * A_BYTES) / B_BYTES] = c->box;
    barrier->bytes -= c->bytes;
    sim_barrier_settle(barrier);
}

/* Let a copy land, any one: nothing orders them. */
static void sim_deliver(void)
{
    const int i = (int)sim_draw((unsigned int)sim.copies);
    const struct sim_copy c = sim.copy[i];
    sim.copy[i] = sim.copy[--sim.copies];
    sim_land(&c);
}

static void sim_copy_queue(int cta, unsigned int to, unsigned int barrier, struct sim_box box,
                           int bytes)
{
    if (sim.copies == SIM_COPIES)
        sim_fail("more copies in flight than stages", sim.copies, 0);
    sim.copy[sim.copies++] = (struct sim_copy){ cta, to, barrier, box, bytes };
    sim.moved++;
}

static void load_box_3d(unsigned int to, const tensor_map *map, unsigned int barrier, int x, int y,
                        int z)
{
    const struct sim_box box = { 1, map->operand, x, y, z };
    sim_copy_queue(sim.current / THREADS, to, barrier, box, B_BYTES);
}

static void load_box_2d_multicast(unsigned int to, const tensor_map *map, unsigned int barrier,
                                  int x, int y, unsigned short cta_mask)
{
    const struct sim_box box = { 1, map->operand, x, y, -1 };
    if (y < 0)
        sim_fail("a box of A outside the buffer", x, y);
    for (int cta = 0; cta < CLUSTER_N; cta++)
        if (cta_mask >> cta & 1)
            sim_copy_queue(cta, to, barrier, box, A_BYTES / CLUSTER_N);
}

static void load_box_2d(unsigned int to, const tensor_map *map, unsigned int barrier, int x, int y)
{
    load_box_2d_multicast(to, map, barrier, x, y, (unsigned short)(1 << sim.current / THREADS));
}

/* --------------------------------------------------------- barriers */

static unsigned int shared_address(const void *p)
{
    (void)p;
    return 1024;
}

static void barrier_init(unsigned int barrier, unsigned int count)
{
    sim_cta()->barrier[sim_barrier_index(barrier)] =
        (struct sim_barrier){ (int)count, (int)count, 0, 0 };
    sim.moved++;
}

static void barrier_init_fence(void) {}
static void prefetch_map(const tensor_map *map) { (void)map; }

static void barrier_expect(unsigned int barrier, unsigned int bytes)
{
    struct sim_barrier *b = &sim_cta()->barrier[sim_barrier_index(barrier)];
    b->bytes += (int)bytes;
    b->pending--;
    sim_barrier_settle(b);
}

static void barrier_arrive(unsigned int barrier, unsigned int rank)
{
    struct sim_barrier *b = &sim.cta[rank].barrier[sim_barrier_index(barrier)];
    if (b->pending == 0)
        sim_fail("one arrival too many", (int)barrier, (int)rank);
    if (sim.left[rank] == THREADS)
        sim_fail("arrival at a CTA that has left", (int)barrier, (int)rank);
    b->pending--;
    sim_barrier_settle(b);
}

static void barrier_wait(unsigned int barrier, unsigned int parity)
{
    const struct sim_barrier *b = &sim_cta()->barrier[sim_barrier_index(barrier)];
    if (parity > 1)
        sim_fail("a parity is 0 or 1", (int)parity, 0);
    while (b->phase == parity)
        sim_yield();
    sim.moved++;
}

/* Every lane gives a value; returns all 32. */
static const uint64_t *sim_gather(uint64_t value)
{
    struct sim_warp *w = &sim_cta()->warp[sim.current % THREADS / 32];
    const unsigned int mine = w->generation;

    w->value[mine & 1][sim.current % 32] = value;
    sim.moved++;
    if (++w->arrived == 32) {
        w->arrived = 0;
        w->generation++;
    }
    while (w->generation == mine)
        sim_yield();
    return w->value[mine & 1];
}

/* --------------------------------------------------------- products */

static void mma_begin(void) {}

static u64 mma_operand(unsigned int address) { return address >> 4; }

static void mma(float *sum, u64 a, u64 b, int accumulate)
{
    struct sim_thread *t = &sim.thread[sim.current];
    struct sim_product p = { sum, (unsigned int)a << 4, (unsigned int)b << 4, accumulate };

    if (t->batches == SIM_BATCHES || t->batch[t->batches].count == SIM_PRODUCTS)
        sim_fail("too many products in flight", t->batches, 0);
    t->batch[t->batches].product[t->batch[t->batches].count++] = p;
}

static void mma_commit(void)
{
    sim.thread[sim.current].batches++;
}

/* Read both operands; each 4 sums are labelled steps of k, row, group, column. */
static void sim_multiply(const struct sim_product *p)
{
    const unsigned int a = p->a - 1024, b = p->b - 1024 - STAGES * A_BYTES;
    const int stage = (int)(a / A_BYTES), rows = (int)(a % A_BYTES) / 128;
    const struct sim_box *from = &sim_cta()->a[stage][rows / (TILE_M / CLUSTER_N)];
    const struct sim_box *with = &sim_cta()->b[b / B_BYTES];
    const int step = (int)(a % 128) / 32, steps = p->accumulate ? (int)p->sum[0] : 0;
    const int row = from->row + rows % (TILE_M / CLUSTER_N);

    if (stage != (int)(b / B_BYTES) || (int)(b % 128) / 32 != step || b % B_BYTES >= 128)
        sim_fail("operands of different stages or steps", stage, step);
    if (!from->valid || from->operand != 'a' || !with->valid || with->operand != 'b')
        sim_fail("a stage is read before it is filled", stage, 0);
    if (from->x != with->x)
        sim_fail("A and B of different k", from->x, with->x);
    if (from->x + 16 * step != 16 * steps)
        sim_fail("k out of step", from->x + 16 * step, 16 * steps);
    if (p->accumulate && ((int)p->sum[1] != row || (int)p->sum[2] != with->group))
        sim_fail("one sum over two tiles", row, with->group);
    for (int j = 0; j < TILE_N / 8; j++) {
        p->sum[4 * j] = (float)(steps + 1);
        p->sum[4 * j + 1] = (float)row;
        p->sum[4 * j + 2] = (float)with->group;
        p->sum[4 * j + 3] = (float)(with->row + 8 * j);
    }
}

static void mma_wait(int pending)
{
    struct sim_thread *t = &sim.thread[sim.current];

    sim_yield(); /* let what others may do too early happen first */
    while (t->batches > pending) {
        for (int i = 0; i < t->batch[0].count; i++)
            sim_multiply(&t->batch[0].product[i]);
        memmove(&t->batch[0], &t->batch[1], sizeof t->batch - sizeof t->batch[0]);
        t->batch[SIM_BATCHES - 1].count = 0;
        t->batches--;
    }
    sim_gather(0); /* .sync.aligned: a warp goes on as one */
}

static void mma_finish(float *sum) { (void)sum; }

/* ----------------------------------------------------------- stores */

static struct sim_slab *sim_slab_at(unsigned int address)
{
    const unsigned int first = 1024 + STAGES * (A_BYTES + B_BYTES);
    if (address < first || (address - first) % SLAB_BYTES ||
        (address - first) / SLAB_BYTES >= SIM_SLABS)
        sim_fail("no slab at this address", (int)address, 0);
    return &sim_cta()->slab[(address - first) / SLAB_BYTES];
}

static void copy_engine_fence(void) {}

static void fill_slab(unsigned int slab, const float *sum, int lane)
{
    struct sim_slab *s = sim_slab_at(slab);
    if (lane)
        return;
    *s = (struct sim_slab){ 1, (int)sum[0], (int)sum[1], (int)sum[2], (int)sum[3], s->version + 1 };
}

/* Count the rows of a box in, once the copy engine has read it. */
static void sim_store_read(const struct sim_store *p)
{
    const struct sim_slab *s = sim_slab_at(p->from);
    const int warp_row = sim.current % THREADS / 32 % 4 * 16;
    const int columns = (sim.n + SLAB_COLUMNS - 1) / SLAB_COLUMNS;

    if (s->version != p->version)
        sim_fail("a slab is filled again before it is stored", p->x, p->row);
    if (s->steps != (sim.k + TILE_K - 1) / TILE_K * (TILE_K / 16))
        sim_fail("a sum is stored before it is complete", s->steps, p->x);
    if (s->row + warp_row != p->row || s->column != p->x)
        sim_fail("a sum is stored at another place than it was computed for", s->row, p->row);
    if (p->x >= sim.n)
        return;
    if (sim.group_of_row && p->row < p->limit && sim.group_of_row[p->row] != s->group)
        sim_fail("rows of one group times the matrix of another", p->row, s->group);
    for (int row = p->row; row < p->row + 16 && row < p->limit; row++)
        if (sim.written[row * columns + p->x / SLAB_COLUMNS]++ && sim.group_of_row)
            sim_fail("stored twice", row, p->x);
}

static void store_wait(int pending)
{
    struct sim_thread *t = &sim.thread[sim.current];

    sim_yield();
    while (t->stores > pending) {
        sim_store_read(&t->store[0]);
        memmove(&t->store[0], &t->store[1], sizeof t->store - sizeof t->store[0]);
        t->stores--;
    }
}

static void sim_store_queue(const tensor_map *map, unsigned int from, int x, int row, int limit)
{
    struct sim_thread *t = &sim.thread[sim.current];

    if (row < 0 || limit > sim.m)
        sim_fail("a box of D outside the buffer", row, limit);
    if (t->stores > SLABS)
        sim_fail("more stores in flight than slabs", t->stores, map->operand);
    t->store[t->stores++] = (struct sim_store){ from, x, row, limit, sim_slab_at(from)->version };
}

static void store_box_2d(const tensor_map *map, unsigned int from, int x, int y)
{
    sim_store_queue(map, from, x, y, y + 16);
}

static void store_box_4d(const tensor_map *map, unsigned int from, int x, int y, int z, int w)
{
    if (map->operand != 'r' || z != RAGGED_ROW)
        sim_fail("not the ragged map's coordinates", map->operand, z);
    sim_store_queue(map, from, x, y - RAGGED_ROW + w, w);
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

    sim.moved++;
    if (++sim_cta()->named[barrier].arrived == threads) {
        sim_cta()->named[barrier].arrived = 0;
        ++*generation;
    }
    while (waits && *generation == mine)
        sim_yield();
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
    while (sim.cluster_generation == mine)
        sim_yield();
}

static void __syncwarp(void) { sim_gather(0); }

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

static int __ffs(unsigned int x) { return __builtin_ffs((int)x); }

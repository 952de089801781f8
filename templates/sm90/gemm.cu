/*
** d[i,:] = a[i,:] * b[g]^T for the rows i of group g; the groups' lengths are read on the device.
**
**   a  [m, k]           $(a.type), k-major, rows 16-byte aligned
**   b  [groups, n, k]   $(b.type), k-major
**   d  [m, n]           $(d.type), rows outside every group are not written
**
** One CTA per multiprocessor walks over the tiles of all groups (walk.cu). Its first warpgroup
** copies tiles of A and B into a ring of STAGES stages; the two others multiply them:
//$ if schedule == "cooperative" then
** they share each tile of D by rows.
//$ else
** each has tiles of its own, and one stores while the other multiplies.
//$ end
//$ if cluster.n > 1 then
** $(cluster.n) CTAs side by side along n share the rows of A: each loads a part for all.
//$ end
**
** A tile that reaches past its group reads rows of the next one; they end in rows of the sum that
** are never stored. Where 16 rows of D cross the end of their group they leave through a ragged
** map, one for all groups: its four dimensions are column, row counted down from 2^30, and two that
** bring the address back to the group's first row, so that a row at or past the group's length
** falls out of the map. (Whole boxes go through a plain map, which the copy engine walks faster.)
*/
//$ local element = a.bytes
//$ local rows = schedule == "cooperative" and tile.m // 2 or tile.m
enum {
    THREADS = $(threads),
    TILE_M = $(tile.m),
    TILE_N = $(tile.n),
    TILE_K = $(tile.k),
    CLUSTER_N = $(cluster.n),
    STAGES = $(stages),
    BAND = $(band), /* row tiles that are visited together */
    ROWS = $(rows), /* of D, in one math warpgroup */
    A_BYTES = TILE_M * TILE_K * $(element),
    B_BYTES = TILE_N * TILE_K * $(element),
    SLAB_COLUMNS = 128 / $(d.bytes),
    SLAB_BYTES = 16 * 128, /* what one warp stores at a time */
    SLABS = $(slabs),      /* of each math warp */
    RAGGED_ROW = 1 << 30
};

//$ include "sm90/ptx.cu"

//$ include "common/sizes.c"

//$ include "sm90/walk.cu"

//$ include "sm90/wgmma.cu"

//$ include(d.bytes == 4 and "sm90/store_f32.cu" or "sm90/store_16bit.cu")

/* Shared memory, as 32-bit addresses. */
struct memory {
    unsigned int a, b, slabs, full, empty;
};

DEVICE struct memory memory_layout(void)
{
    extern __shared__ unsigned char dynamic[];
    struct memory s;

    s.a = (shared_address(dynamic) + 1023) & ~1023u; /* swizzle patterns repeat every 1024 bytes */
    s.b = s.a + STAGES * A_BYTES;
    s.slabs = s.b + STAGES * B_BYTES;
    s.full = s.slabs + 8 * SLABS * SLAB_BYTES;
    s.empty = s.full + STAGES * 8;
    return s;
}

/* A place in the ring; `parity` flips with every round. */
struct place {
    int stage;
    unsigned int parity;
};

DEVICE void place_advance(struct place *p, int steps)
{
    const int stage = p->stage + steps;
    p->parity ^= stage / STAGES & 1;
    p->stage = stage % STAGES;
}

DEVICE void place_next(struct place *p)
{
    if (++p->stage == STAGES) {
        p->stage = 0;
        p->parity ^= 1;
    }
}

/* The copying thread: fill stages with the tiles of one tile of D. */
DEVICE void load_tile(const struct memory *s, struct place *p, const struct tile *t,
                      const tensor_map *a_map, const tensor_map *b_map, int rank, int k)
{
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int full = s->full + p->stage * 8;
        const unsigned int a = s->a + p->stage * A_BYTES, b = s->b + p->stage * B_BYTES;

        barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
        barrier_expect(full, A_BYTES + B_BYTES);
//$ if cluster.n > 1 then
        const int part = rank * (TILE_M / CLUSTER_N);
        load_box_2d_multicast(a + part * TILE_K * $(element), a_map, full, x,
                              (int)t->start + t->row + part, (1 << CLUSTER_N) - 1);
//$ else
        load_box_2d(a, a_map, full, x, (int)t->start + t->row);
//$ end
        load_box_3d(b, b_map, full, x, t->column + rank * TILE_N, t->group);
        place_next(p);
    }
}

/* A math warp is done with a stage: tell every CTA that writes into it. */
DEVICE void release(const struct memory *s, int stage, int lane)
{
    if (lane < CLUSTER_N)
        barrier_arrive(s->empty + stage * 8, lane);
}

/* sum = a * b over all of k; one batch of products is always in flight. */
DEVICE void multiply_tile(float sum[ROWS / 64][TILE_N / 2], const struct memory *s,
                          struct place *p, int first_row, int k, int lane)
{
    int previous = -1;

    for (int x = 0; x < k; x += TILE_K) {
        const u64 a = mma_operand(s->a + p->stage * A_BYTES + first_row * TILE_K * $(element));
        const u64 b = mma_operand(s->b + p->stage * B_BYTES);

        barrier_wait(s->full + p->stage * 8, p->parity);
        mma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)
#pragma unroll
            for (int i = 0; i < ROWS / 64; i++)
                mma(sum[i], a + (i * 64 * TILE_K * $(element) + step * 32) / 16,
                    b + step * 32 / 16, x > 0 || step > 0);
        mma_commit();
        mma_wait(1);
        if (previous >= 0)
            release(s, previous, lane);
        previous = p->stage;
        place_next(p);
    }
    mma_wait(0);
    release(s, previous, lane);
#pragma unroll
    for (int i = 0; i < ROWS / 64; i++)
        mma_finish(sum[i]);
}

/* The slabs of one math warp, filled in turns. */
struct slabs {
    unsigned int first;
    int turn;
};

/* One warp stores its rows of a tile, a slab at a time; rows past the group are dropped. */
DEVICE void store_tile(const float sum[ROWS / 64][TILE_N / 2], struct slabs *slabs,
                       const struct tile *t, const tensor_map *d_map,
                       const tensor_map *d_ragged_map, int first_row, int column, int lane)
{
#pragma unroll
    for (int i = 0; i < ROWS / 64; i++) {
        const int row = t->row + first_row + 64 * i;
        if (row >= (int)t->length)
            break;
#pragma unroll
        for (int j = 0; j < TILE_N / SLAB_COLUMNS; j++) {
            const unsigned int slab = slabs->first + slabs->turn * SLAB_BYTES;
            slabs->turn = (slabs->turn + 1) % SLABS;
            if (lane == 0)
                store_wait(SLABS - 1);
            __syncwarp();
            fill_slab(slab, sum[i] + j * SLAB_COLUMNS / 2, lane);
            copy_engine_fence();
            __syncwarp();
            if (lane == 0 && row + 16 <= (int)t->length)
                store_box_2d(d_map, slab, column + j * SLAB_COLUMNS, (int)t->start + row);
            else if (lane == 0)
                store_box_4d(d_ragged_map, slab, column + j * SLAB_COLUMNS,
                             RAGGED_ROW - (int)t->length + row, RAGGED_ROW,
                             (int)(t->start + t->length));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
//$ for _, p in ipairs(params) do
    $(p.type) $(p.name)$(p.comma)
//$ end
)
{
    const struct memory s = memory_layout();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warpgroup = __shfl_sync(~0u, warp / 4, 0); /* the same in all lanes, plainly */
//$ if cluster.n > 1 then
    const int rank = (int)cluster_rank();
//$ else
    const int rank = 0;
//$ end
    const unsigned int clusters = gridDim.x / CLUSTER_N, cluster = blockIdx.x / CLUSTER_N;
    const int tile_columns = (n + CLUSTER_N * TILE_N - 1) / (CLUSTER_N * TILE_N);
    struct walk w = { first_dims, offsets, sizes_bytes, groups, (unsigned int)m,
                      (unsigned int)tile_columns };
    struct place p = { 0, 0 };
    struct tile t;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full + i * 8, 1);
            barrier_init(s.empty + i * 8, $(schedule == "cooperative" and 8 or 4) * CLUSTER_N);
        }
        barrier_init_fence();
        prefetch_map(&a_map);
        prefetch_map(&b_map);
        prefetch_map(&d_map);
        prefetch_map(&d_ragged_map);
    }
//$ if cluster.n > 1 then
    cluster_sync();
//$ else
    __syncthreads();
//$ end

    if (warpgroup == 0) {
        registers_release(40);
        if (warp == 0) {
            walk_begin(&w, cluster, clusters, lane);
            while (walk_next(&w, &t, lane)) {
                if (elect_lane())
                    load_tile(&s, &p, &t, &a_map, &b_map, rank, k);
                __syncwarp();
            }
        } else if (warp == 1 && lane == 0 && blockIdx.x == 0) {
            check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error);
        }
    } else {
        registers_take(232);
        const int math = warpgroup - 1; /* 0 or 1 */
        struct slabs slabs = { s.slabs + (warp - 4) * SLABS * SLAB_BYTES, 0 };
        float sum[ROWS / 64][TILE_N / 2];
//$ if schedule == "cooperative" then

        walk_begin(&w, cluster, clusters, lane);
        while (walk_next(&w, &t, lane)) {
            multiply_tile(sum, &s, &p, math * ROWS, k, lane);
            store_tile(sum, &slabs, &t, &d_map, &d_ragged_map,
                       math * ROWS + warp % 4 * 16, t.column + rank * TILE_N, lane);
        }
//$ else
        const int stages_per_tile = (k + TILE_K - 1) / TILE_K;

        /* Named barriers 1 and 2 pass the tensor cores from one warpgroup to the other. */
        walk_begin(&w, cluster + math * clusters, 2 * clusters, lane);
        place_advance(&p, math * stages_per_tile);
        if (math == 1)
            named_arrive(1, 256);
        while (walk_next(&w, &t, lane)) {
            named_wait(1 + math, 256);
            multiply_tile(sum, &s, &p, 0, k, lane);
            named_arrive(2 - math, 256);
            place_advance(&p, stages_per_tile);
            store_tile(sum, &slabs, &t, &d_map, &d_ragged_map, warp % 4 * 16,
                       t.column + rank * TILE_N, lane);
        }
//$ end
        if (lane == 0)
            store_wait(0);
    }
//$ if cluster.n > 1 then
    cluster_sync(); /* no CTA leaves while another may still arrive on its barriers */
//$ end
}

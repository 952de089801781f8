/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA C of kernels without copies and products, for the host: each thread is a
   coroutine, CTA after CTA is run, and an exchange of a warp's lanes waits for
   all of them. Between two exchanges lanes have no order: a round
   visits them in another one each time. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__ static
#define __forceinline__ inline __attribute__((unused))
#define __global__ static
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __ldg(at) (*(at))
#define __ffs(bits) __builtin_ffs((int)(bits))

typedef struct { unsigned x, y, z, w; } __attribute__((aligned(16))) uint4;
typedef struct { float x, y; } __attribute__((aligned(8))) float2;
typedef struct { float x, y, z, w; } __attribute__((aligned(16))) float4;

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    const uint4 v = { x, y, z, w };
    return v;
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    const float4 v = { x, y, z, w };
    return v;
}

enum { SIM_MOST = 128, SIM_STACK = 64 * 1024 };

static struct {
    ucontext_t scheduler, thread[SIM_MOST];
    char *stack[SIM_MOST];
    struct { unsigned x; } index[SIM_MOST], block, grid;
    int ended[SIM_MOST], current;
    struct { uint32_t value[2][32]; int arrived; unsigned generation; } warp[SIM_MOST / 32];
} sim;

#define threadIdx sim.index[sim.current]
#define blockIdx sim.block
#define gridDim sim.grid

/* All lanes of the warp are here, each with a value; returns the value of `lane`. */
static uint32_t sim_exchange(uint32_t value, int lane)
{
    const int self = sim.current, w = self / 32;
    const unsigned generation = sim.warp[w].generation;

    sim.warp[w].value[generation % 2][self % 32] = value;
    if (++sim.warp[w].arrived == 32) {
        sim.warp[w].arrived = 0;
        sim.warp[w].generation++;
    }
    while (sim.warp[w].generation == generation)
        swapcontext(&sim.thread[self], &sim.scheduler);
    return sim.warp[w].value[generation % 2][lane & 31];
}

static float sim_exchange_float(float value, int lane)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = sim_exchange(bits, lane);
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static uint32_t sim_ballot(int holds)
{
    uint32_t all = 0;

    sim_exchange(holds != 0, 0);
    for (int i = 0; i < 32; i++)
        all |= sim.warp[sim.current / 32].value[
                   (sim.warp[sim.current / 32].generation - 1) % 2][i] << i;
    sim_exchange(0, 0); /* no thread overwrites values being read */
    return all;
}

#define SIM_LANE (sim.current % 32)
#define sim_take(v, lane) \
    _Generic((v), float: sim_exchange_float, default: sim_exchange)(v, lane)
#define __shfl_sync(mask, v, lane) sim_take(v, lane)
#define __shfl_xor_sync(mask, v, distance) sim_take(v, SIM_LANE ^ (distance))
#define __shfl_up_sync(mask, v, distance) \
    sim_take(v, SIM_LANE < (int)(distance) ? SIM_LANE : SIM_LANE - (int)(distance))
#define __ballot_sync(mask, holds) sim_ballot(holds)
#define __syncwarp() sim_exchange(0, 0)

static void sim_enter(void);

static void sim_thread(void)
{
    sim_enter();
    sim.ended[sim.current] = 1;
    setcontext(&sim.scheduler);
}

/* One CTA of `threads`. */
static void sim_block(int threads)
{
    int left = threads;

    memset(sim.warp, 0, sizeof sim.warp);
    for (int i = 0; i < threads; i++) {
        sim.index[i].x = (unsigned)i;
        sim.ended[i] = 0;
        if (!sim.stack[i])
            sim.stack[i] = malloc(SIM_STACK);
        getcontext(&sim.thread[i]);
        sim.thread[i].uc_stack.ss_sp = sim.stack[i];
        sim.thread[i].uc_stack.ss_size = SIM_STACK;
        makecontext(&sim.thread[i], sim_thread, 0);
    }
    for (int round = 0; left > 0; round++) {
        for (int i = 0; i < threads; i++) {
            sim.current = (i * 5 + round * 7) % threads;
            if (!sim.ended[sim.current])
                swapcontext(&sim.scheduler, &sim.thread[sim.current]);
        }
        left = 0;
        for (int i = 0; i < threads; i++)
            left += !sim.ended[i];
    }
}

static const void *const *sim_values;

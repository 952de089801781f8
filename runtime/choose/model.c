/* SPDX-License-Identifier: Apache-2.0 */
/*
** model.c: the time of a kernel for a problem.
**
**     groups have the same length; a group's end wastes half a tile:
**     tiles  = G * max(1, L/tile_m + 1/2) * ceil(n / tile_n)      L = m / G
**              columns rounded up to whole clusters; rows are not, since a
**              pair along m turns to be along n where one is left over
**     waves  = ceil(tiles / CTAs)           CTAs: a multiple of the cluster
**     math   = tile_m * tile_n * k / FMA per cycle; mma.sync (kernels
**              without tensor maps) does half as many, FP8 twice as many
**              where codes are dequantized, that time if it is more
**              (model_dequantize.c)
**     copy   = (tile_m/cluster_n + tile_n/cluster_m) * k * bytes / L2 rate
**              * max(1, k / DRIFT): CTAs fall out of step, and after so many
**              steps L2 has lost the bytes that the last of them asks for
**              an operand's part times the lines that a row of 128 bytes is
**              in, where rows begin anywhere: 2 - gcd(pitch, 128) / 128,
**              and 1.5 more where the pitch is no multiple of 32 bytes
**     store  = tile_m * tile_n * bytes of D / STORE rate; pingpong hides it
**              after the other warpgroup's math
**              with an activation backward at least its time,
**              tile_m * tile_n / GRADIENT
**              (of fewer rows where its tiles often are, and then groups of
**              two thirds of a tile are one: model_dequantize.c)
**     tile   = max(math, copy) + store + START
**     memory = (A + B + D once, and C if it is read) / memory rate
**     launch = max(waves * tile, memory)
**              where C is read, by how it arrives:
**              "reduce"  max(1.03 waves * tile, 1.5 memory)
**              "fetch"   max(1.02 waves * tile, 1.05 memory)
**              a kernel of several parts 1.09 and 1.44, not 1.03 and 1.02;
**              of its k each part ends within a step, half of one more
**              others    max(waves * tile, 1.2 memory)
**                        + min(waves * tile, memory) / 2
**
** Quantizing A is counted in fuse_model.c. The L2 rate is that of the
** multiprocessor's port: 128 x 128 asks for all of it, tiles of 64 rows for
** more, wider ones for less (bench/notes: cycles). All this is in cycles; bytes
** out of L2 also cost power, and so clock: kernels are ordered by a launch
** whose tiles take 0.15 of their copies longer, where tokens are summed 0.08;
** lone CTAs three quarters of that, and of 0.15 wherever they wait for copies
** (bench/notes: power). At those clocks L2 is the faster one: during two-level
** accumulation copies count 0.8, and math, by how much of it a warpgroup has in
** one product, 1.2 (two a step), 1.17 or 1.3 (128 columns; bench/notes: fp8).
** The tuner replaces the model where it measured.
*/
#include "choose/model.h"
#include "base/types.h"
#include "choose/select.h"
#include "choose/tensormap.h"
#include "problem/dequantize_rules.h"
#include "problem/geometry.h"

#include <string.h>

#define UNPACKED        4.0     /* mma.sync on unpacked values: its math */
#define L2_PER_CYCLE    62.0    /* bytes into one multiprocessor, of 64 */
#define STORE_PER_CYCLE 32.0    /* bytes out of one multiprocessor */
#define GRADIENT        2.5     /* elements a cycle, bench/notes: mlp */
#define START_CYCLES    1200.0  /* first copies of a tile, its barriers */
#define MEETING_CYCLES  20.0    /* CTAs of a cluster wait for each other */
#define SECTORS         1.5     /* of rows that begin within one of 32 bytes */
#define DRIFT           20480.0 /* steps of k */
#define L2_EFFORT       0.15    /* of cycles of copies */
#define L2_SUMMED       0.08    /* the same where tokens are summed */
#define TOGETHER        0.75    /* share of a lone CTA's bytes that leaves L2 */
#define BESIDE          0.8     /* copies during two-level sums */

/* The cost of C, by its path: factors of the computation and of plain
   copies, and the part of the smaller of both that the other does not hide.
   "fetch" has fewer stages and shares the copy engine with A and B, which
   tells where several parts each have steps of their own (bench/notes:
   merged-wgrad). The last row is for all others. */
static const struct arrival {
    const char *addend;
    double compute, merged, memory, exposed;
} arrivals[] = {
    {"reduce", 1.03, 1.09, 1.5, 0.0}, /* fp32 sums in L2 */
    {"fetch", 1.02, 1.44, 1.05, 0.0},
    {"read", 1.0, 1.0, 1.2, 0.5}, /* by the math warps */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Rounded up; no figure here comes near 2^63. */
static double whole(double a)
{
    double down = (double)(int64_t)a;

    return down < a ? down + 1 : down;
}

/* The bytes of all operands, packed; A and B of so many products. */
static double moved_bytes(const struct qn_demand *demand, int microbatches)
{
    struct qn_geometry g;
    double bytes = 0;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if ((role == QN_ROLE_C && demand->problem->beta == QUERN_BETA_ZERO) ||
            !qn_geometry_has(demand->problem, role))
            continue;
        qn_geometry_of(demand->problem, demand->recipe, role, &g);
        bytes += (double)qn_geometry_bytes(&g, 0, 0) *
                 (role <= QN_ROLE_B ? microbatches : 1);
    }
    return bytes;
}

/* The tiles of one group; neighbouring CTAs start together, needed or not. */
static double tiles_along(double length, double tile, int cluster, int ragged)
{
    if (cluster > 1)
        tile *= cluster;
    length = ragged ? larger(1, length / tile + 0.5) : whole(length / tile);
    return cluster > 1 ? length * cluster : length;
}

static int uses_maps(const struct qn_kernel *kernel)
{
    for (int i = 0; i < QN_MAPS; i++)
        if (qn_tensormap_takes(kernel, qn_tensormap_params[i].param))
            return 1;
    return 0;
}

/* Cycles of a launch whose tiles and whose bytes take so many. */
static double launch_cycles(const struct qn_problem *p,
                            const struct qn_kernel *kernel, double compute,
                            double memory)
{
    const struct arrival *a = arrivals;
    int merged = qn_select_microbatches(p, kernel) > 1;

    if (p->beta == QUERN_BETA_ZERO)
        return larger(compute, memory);
    while (a < &arrivals[sizeof arrivals / sizeof *arrivals - 1] &&
           strcmp(a->addend, kernel->addend))
        a++;
    return larger(compute * (merged ? a->merged : a->compute),
                  memory * a->memory) +
           smaller(compute, memory) * a->exposed;
}

/* Copying a row of 128 bytes takes so many times as long as one that is a line
   of L2: bench/notes: cycles. */
static double lines_of(const struct qn_demand *demand, int role)
{
    enum { LINE = 128, SECTOR = 32 };
    struct qn_geometry g;
    int64_t pitch, common = LINE;

    qn_geometry_of(demand->problem, demand->recipe, role, &g);
    pitch = g.pitch * qn_type_bits(g.type) / 8;
    while (pitch % common)
        common /= 2;
    return (2 - (double)common / LINE) * (common < SECTOR ? SECTORS : 1);
}

/* The time of a tile, by the formulas above, for k steps of it and groups of m
   rows. */
static void estimate_tile(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double m, double k,
                          struct qn_figures *f)
{
    double tile_m = larger(qn_model_dequantize_rows(kernel, m), 1),
           tile_n = larger(kernel->tile[1], 1);
    double a = qn_fuse_bytes(kernel), b = qn_type_bits(kernel->b.type) / 8.0;

    f->math = tile_m * tile_n * k / QN_FMA_PER_CYCLE;
    if (!uses_maps(kernel))
        f->math *= a < 2 || b < 2 ? UNPACKED : 2;
    else if (qn_model_dequantizes(kernel))
        f->math = larger(
            f->math, qn_model_dequantize_cycles(kernel, tile_m, k, f->math));
    else if (b < 2)
        f->math /= 2;
    f->math = larger(f->math, qn_fuse_tile(kernel, k));
    a *= lines_of(demand, QN_ROLE_A);
    b *= lines_of(demand, QN_ROLE_B);
    f->copy = (tile_m * a / larger(kernel->cluster[1], 1) +
               tile_n * b / larger(kernel->cluster[0], 1)) *
              k / L2_PER_CYCLE * larger(1, k / DRIFT);
    f->store =
        tile_m * tile_n * qn_type_bits(kernel->d.type) / 8 / STORE_PER_CYCLE;
    if (kernel->epilogue >= QN_GRADIENT)
        f->store = larger(2 * f->store, tile_m * tile_n / GRADIENT);
    if (!strcmp(kernel->schedule, "pingpong"))
        f->store = larger(0, f->store - f->math);
    f->tile_cycles = larger(f->math, f->copy) + f->store + START_CYCLES;
}

/* The effect of two-level accumulation on the math of tiles with so many sums:
   while one warpgroup adds up its own, the other's products must not end. */
static const struct promotion {
    int sums;
    double times;
} promotions[] = {{128 * 128, 1.3}, {128 * 192, 1.17}, {128 * 256, 1.2}};

/* The time of a tile where power binds; two-level ones that are only stored are
   as fast as others, large or small: next to the next tile's copies. */
static double slow_tile(const struct qn_demand *demand,
                        const struct qn_kernel *kernel,
                        const struct qn_figures *f)
{
    const struct promotion *all = promotions;
    double store = kernel->epilogue == QN_STORE
                       ? smaller(f->store, START_CYCLES)
                       : f->store;

    if (!demand->recipe->promote || !uses_maps(kernel) ||
        qn_model_dequantizes(kernel) || demand->problem->ragged == QUERN_AXIS_K)
        return f->tile_cycles;
    while (all->sums < kernel->tile[0] * kernel->tile[1] &&
           all < &promotions[sizeof promotions / sizeof *promotions - 1])
        all++;
    return larger(f->math * all->times, f->copy * BESIDE) + store +
           START_CYCLES;
}

/* Cycles of the tiles, and bytes out of L2, which cost power and so clock. A
   lone CTA causes fewer of those than it gets: bytes that neighbours ask for at
   about the same time are read once, unless they wait for copies and lose their
   step. CTAs of a cluster wait for each other. */
static double effort(const struct qn_demand *demand,
                     const struct qn_kernel *kernel, const struct qn_figures *f)
{
    double part =
               demand->problem->ragged == QUERN_AXIS_K ? L2_SUMMED : L2_EFFORT,
           tile = slow_tile(demand, kernel, f);

    if (kernel->cluster[0] * kernel->cluster[1] > 1)
        return f->waves * (tile + f->copy * part + MEETING_CYCLES);
    if (f->copy > f->math)
        part = L2_EFFORT;
    return f->waves * (tile + f->copy * TOGETHER * part);
}

void qn_model_estimate(const struct qn_demand *demand,
                       const struct qn_kernel *kernel, struct qn_figures *f)
{
    const struct qn_problem *p = demand->problem;
    double lengths[] = {(double)p->m, (double)p->n, (double)p->k};
    double tile_m = larger(kernel->tile[0], 1),
           tile_n = larger(kernel->tile[1], 1);
    int cluster = kernel->cluster[0] * kernel->cluster[1];
    double sms = demand->sms - (cluster > 1 ? demand->sms % cluster : 0);
    int microbatches = qn_select_microbatches(p, kernel);
    int launches =
        ((p->microbatches > 1 ? p->microbatches : 1) + microbatches - 1) /
        microbatches;

    lengths[2] *= microbatches;
    if (p->ragged != QUERN_AXIS_NONE)
        lengths[p->ragged - QUERN_AXIS_M] /= p->groups;
    if (microbatches > 1)
        lengths[2] += microbatches * kernel->tile[2] / 2.0; /* each ends in a
                                                               step */
    estimate_tile(demand, kernel, lengths[0], lengths[2], f);
    f->tiles =
        p->groups *
        (qn_model_dequantize_whole(kernel, lengths[0])
             ? 1
             : tiles_along(lengths[0], tile_m, 1, p->ragged == QUERN_AXIS_M)) *
        tiles_along(lengths[1], tile_n, kernel->cluster[1],
                    p->ragged == QUERN_AXIS_N);
    f->waves = whole(f->tiles / larger(sms, 1));
    f->real = p->groups * lengths[0] * lengths[1] /
              (larger(f->tiles, 1) * tile_m * tile_n);
    f->memory_cycles = moved_bytes(demand, microbatches) / QN_MEMORY_PER_CYCLE;
    f->cycles = launches * launch_cycles(p, kernel, f->waves * f->tile_cycles,
                                         f->memory_cycles);
    f->effort = effort(demand, kernel, f);
    f->order = launches * launch_cycles(p, kernel, f->effort, f->memory_cycles);
    qn_fuse_estimate(demand, kernel, QN_MEMORY_PER_CYCLE, f);
    if (p->quantize)
        f->order = f->cycles;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** model.c: the time of a kernel for a problem, in cycles of the GPU's highest
** clock.
**
**     groups have the same length, of fewer tokens than groups one each has
**     one, and others are not visited; a group's end wastes half a tile:
**     tiles  = G * max(1, L/tile_m + 1/2) * ceil(n / tile_n)      L = m / G
**              columns rounded up to whole clusters; rows are where two CTAs
**              multiply together, else a pair along m turns to be along n
**              where one is left over
**     waves  = ceil(tiles / CTAs)           CTAs: a multiple of the cluster
**              more for few tiles of few tokens (model_dequantize.c)
**     math   = tile_m * tile_n * k / FMA per cycle; mma.sync (kernels
**              without tensor maps) SYNC times as many, of codes UNPACKED or,
**              taken as they are, SYNC by their bytes, and SYNC_STEP for each
**              step of k; ACROSS for each code of B whose rows are steps of k,
**              and OWN where it has a scale that few others share; codes of 8
**              bits half as many, of 4 bits a quarter;
**              two-level sums `promotions` times;
**              where codes are dequantized, that time if it is more
**              (model_dequantize.c); on GPUs that were not measured here by
**              others' rates (model_reported.c)
**              (k with whole steps for the rank of adapters)
**     copy   = (tile_m/cluster_n + tile_n/cluster_m) * k * bytes, of a lone CTA
**              TOGETHER of them, / this CTA's part of L2's rate, or PORT
**              * max(1, k / DRIFT): CTAs fall out of step, and after so many
**              steps L2 has lost the bytes that the last of them asks for
**              an operand's part times the lines that a row of 128 bytes is
**              in, where rows begin anywhere: 2 - gcd(pitch, 128) / 128,
**              and 1.5 more where the pitch is no multiple of 32 bytes
**     store  = tile_m * tile_n * bytes of D / STORE rate, `arrivals` times as
**              long where C is added; pingpong hides it after the other
**              warpgroup's math, unless that has no tile; "overlapped" after
**              the next tile's
**              with an activation at least its time, tile_m * tile_n / ACTIVATE
**              or, backward, / GRADIENT
**              (of fewer rows where its tiles often are, and then groups of
**              two thirds of a tile are one: model_dequantize.c)
**     tile   = beside(math, copy) + store + START, clusters MEETING times
**     again  = bytes of A and B that memory reads more than once: see reread()
**     memory = (A + B + D once, C if it is read, and again) / memory rate
**     launch = beside(waves * tile, memory), the larger of both and a part of
**              the other that grows as they become equal; where C is read each
**              is `arrivals` times as long
**
** The rates of memory and L2 are the GPU's: an H100 has two thirds of an H200's
** memory rate and less of its L2, and its best weight gradients are those of
** larger tiles. Constants without another note were fitted to half of the
** problems that bench/grid.py measured on both chips; bench/regret.py tells how
** good the choices are, also of the other half (bench/notes: grid). The tuner
** replaces the model where it measured. Quantizing A is counted in
** fuse_model.c.
*/
#include "choose/model.h"
#include "base/types.h"
#include "choose/select.h"
#include "choose/tensormap.h"
#include "device/driver.h"
#include "problem/dequantize_rules.h"
#include "problem/geometry.h"

#include <string.h>

#define UNPACKED        4.0     /* mma.sync on unpacked values: its math */
#define SYNC            1.5     /* mma.sync: its math */
#define SYNC_STEP       340.0   /* cycles of a step of k there */
#define ACROSS          0.68    /* of a code that is a byte to load */
#define OWN             1.9     /* of one whose scale is, from memory */
#define PORT            64.0    /* bytes into one multiprocessor, by design */
#define TOGETHER        0.63    /* bytes of a lone CTA that leave L2 */
#define STORE_PER_CYCLE 24.0    /* bytes out of one multiprocessor */
#define ACTIVATE        3.2     /* elements a cycle */
#define GRADIENT        4.2     /* the same, backward */
#define START_CYCLES    780.0   /* first copies of a tile, its barriers */
#define MEETING         1.11    /* CTAs of a cluster wait for each other */
#define SECTORS         1.5     /* of rows that begin within one of 32 bytes */
#define DRIFT           42700.0 /* steps of k */
#define BESIDE          0.9     /* copies during two-level sums */
#define EXPOSED         0.27    /* of math or copies, if both are equal */
#define EXPOSED_MEMORY  0.35    /* of tiles or memory, if both are equal */
#define CAPACITY        1.88    /* of L2 for panels that are read again */
#define LOST            0.068   /* of bytes out of L2, where these do not fit */

/* The cost of C, by its path: factors of the computation, of plain copies and
   of the store. "fetch" has fewer stages and shares the copy engine with A and
   B, which tells where several parts each have steps of their own (bench/notes:
   merged-wgrad). The last row is for all others. */
static const struct arrival {
    const char *addend;
    double compute, merged, memory, store;
} arrivals[] = {
    {"reduce", 1.0, 1.06, 1.42, 1.67}, /* fp32 sums in L2 */
    {"fetch", 1.14, 1.6, 1.05, 1.16},
    {"read", 1.0, 1.0, 1.43, 1.68}, /* by the math warps */
};

/* The effect of two-level accumulation on the math of tiles with so many sums:
   while one warpgroup adds up its own, the other's products must not end. Steps
   of summed tokens have both factors in common. */
static const struct promotion {
    int sums;
    double times, summed;
} promotions[] = {
    {128 * 128, 1.51, 1.0}, {128 * 192, 1.37, 1.0}, {128 * 256, 1.37, 1.11}};

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

/* The bytes of an operand, packed; A and B of all products of a launch. */
static double operand_bytes(const struct qn_demand *demand,
                            const struct qn_kernel *kernel, int role)
{
    struct qn_geometry g;

    qn_geometry_of(demand->problem, demand->recipe, role, &g);
    return (double)qn_geometry_bytes(&g, 0, 0) *
           (role <= QN_ROLE_B ? qn_select_microbatches(demand->problem, kernel)
                              : 1);
}

static double moved_bytes(const struct qn_demand *demand,
                          const struct qn_kernel *kernel)
{
    double bytes = 0;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if ((role != QN_ROLE_C || demand->problem->beta != QUERN_BETA_ZERO) &&
            qn_geometry_has(demand->problem, role))
            bytes += operand_bytes(demand, kernel, role);
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

/* CTAs one above the other that cannot be side by side. */
static int stacked(const struct qn_kernel *kernel)
{
    return strcmp(kernel->schedule, "overlapped") ? 1 : kernel->cluster[0];
}

/* The time of two things at once that each take so many cycles, of which
   `exposed` of the smaller is not hidden where both are equal, and less where
   they are not. */
static double beside(double a, double b, double exposed, int power)
{
    double most = larger(a, b), least = smaller(a, b), part = exposed * least;

    while (power--)
        part *= least / larger(most, 1);
    return most + part;
}

/* The row for C, or NULL if it is not read. */
static const struct arrival *arrival_of(const struct qn_problem *p,
                                        const struct qn_kernel *kernel)
{
    const struct arrival *a = arrivals;

    if (p->beta == QUERN_BETA_ZERO)
        return NULL;
    while (a < &arrivals[sizeof arrivals / sizeof *arrivals - 1] &&
           strcmp(a->addend, kernel->addend))
        a++;
    return a;
}

/* Cycles of a launch whose tiles and whose bytes take so many. */
static double launch_cycles(const struct qn_problem *p,
                            const struct qn_kernel *kernel, double compute,
                            double memory)
{
    const struct arrival *a = arrival_of(p, kernel);

    if (a) {
        compute *=
            qn_select_microbatches(p, kernel) > 1 ? a->merged : a->compute;
        memory *= a->memory;
    }
    return beside(compute, memory, EXPOSED_MEMORY, 2);
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

/* Is the sum of A and B's scaled products separate from that of its steps? */
static int promotes(const struct qn_demand *demand,
                    const struct qn_kernel *kernel)
{
    return demand->recipe->promote && qn_tensormap_any(kernel) &&
           !qn_model_dequantizes(kernel);
}

static double promotion_of(const struct qn_demand *demand,
                           const struct qn_kernel *kernel)
{
    const struct promotion *all = promotions;

    while (all->sums < kernel->tile[0] * kernel->tile[1] &&
           all < &promotions[sizeof promotions / sizeof *promotions - 1])
        all++;
    return demand->problem->ragged == QUERN_AXIS_K ? all->summed : all->times;
}

/* The math of mma.sync on values of so many bytes: those that it multiplies as
   they are take time by their bytes. */
static double sync_times(const struct qn_kernel *kernel, double a, double b)
{
    if (qn_select_takes_codes(kernel))
        return SYNC * larger(a, b) / 2;
    return a < 2 || b < 2 ? UNPACKED : SYNC;
}

/* Steps of k of mma.sync. Codes in rows that are steps of k are loaded one by
   one, and so are scales, if not all columns of a tile have one (bench/notes:
   layer-mxfp8). */
static double sync_steps(const struct qn_demand *demand,
                         const struct qn_kernel *kernel, double k)
{
    const struct qn_scaling *s = &demand->recipe->scaling[QN_W];
    const double codes = larger(kernel->tile[1], 1) * k;
    double cycles = SYNC_STEP * k / larger(kernel->tile[2], 1);

    if (kernel->b.major != QUERN_MAJOR_MN || qn_type_bits(kernel->b.type) > 8)
        return cycles;
    if (s->rows < 4 && s->k % (int)larger(kernel->tile[1], 1))
        cycles += OWN * codes;
    return cycles + ACROSS * codes;
}

/* The rates that hold for the kernel, or NULL: those that were measured. */
static const struct qn_model_reported *
reported_of(const struct qn_demand *demand, const struct qn_kernel *kernel)
{
    const struct qn_model_reported *r =
        demand->device ? qn_model_reported(demand->device->major) : NULL;

    return r && (r->sync || qn_tensormap_any(kernel)) ? r : NULL;
}

/* The same math by rates of others: `math` is that of BF16 on Hopper. Codes
   that mma.sync takes as 16 bits cost as much more as there. */
static double reported_cycles(const struct qn_model_reported *r,
                              const struct qn_kernel *kernel, double math,
                              double rows, double k, double bytes)
{
    const double reads =
        (rows + larger(kernel->tile[1], 1)) * k * bytes / larger(r->shared, 1);
    double times = bytes / 2, share = r->shares[bytes < 1 ? 2 : bytes < 2];

    if (bytes < 2 && !qn_tensormap_any(kernel) &&
        !qn_select_takes_codes(kernel)) {
        times = UNPACKED / SYNC;
        share = r->shares[0];
    }
    math *= QN_FMA_PER_CYCLE / r->products * times / share;
    return r->shared > 0 ? larger(math, reads) : math;
}

/* Products of a tile of so many rows and k steps. */
static double math_cycles(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double rows, double k)
{
    double a = qn_fuse_bytes(kernel), b = qn_type_bits(kernel->b.type) / 8.0;
    double math = rows * larger(kernel->tile[1], 1) * k / QN_FMA_PER_CYCLE;
    const struct qn_model_reported *r = reported_of(demand, kernel);

    if (qn_model_few_tokens(kernel))
        math = qn_model_dequantize_cycles(demand, kernel, rows, k, math);
    else if (r)
        math = reported_cycles(r, kernel, math, rows, k, larger(a, b)) +
               (qn_tensormap_any(kernel) ? 0 : sync_steps(demand, kernel, k));
    else if (!qn_tensormap_any(kernel))
        math = math * sync_times(kernel, a, b) + sync_steps(demand, kernel, k);
    else if (qn_model_dequantizes(kernel))
        math = larger(
            math, qn_model_dequantize_cycles(demand, kernel, rows, k, math));
    else if (b < 2)
        math *= larger(a, b) / 2;
    math = larger(math, qn_fuse_tile(kernel, k));
    return promotes(demand, kernel) ? math * promotion_of(demand, kernel)
                                    : math;
}

/* Copies of such a tile, where so many CTAs have one. */
static double copy_cycles(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double rows, double k,
                          double ctas)
{
    const double a = qn_fuse_bytes(kernel) * lines_of(demand, QN_ROLE_A),
                 b = qn_type_bits(kernel->b.type) / 8.0 *
                     lines_of(demand, QN_ROLE_B);
    const int lone = kernel->cluster[0] * kernel->cluster[1] <= 1;
    double bytes =
        (rows * a / larger(kernel->cluster[1], 1) +
         larger(kernel->tile[1], 1) * b / larger(kernel->cluster[0], 1)) *
        k;
    const struct qn_model_reported *r = reported_of(demand, kernel);
    const double port = r && r->port > 0 ? r->port : PORT;
    double cycles = larger(bytes / port, bytes * (lone ? TOGETHER : 1) * ctas *
                                             larger(1, k / DRIFT) /
                                             qn_model_l2(demand->device));

    return promotes(demand, kernel) ? cycles * BESIDE : cycles;
}

static double store_cycles(const struct qn_demand *demand,
                           const struct qn_kernel *kernel, double rows)
{
    const struct arrival *a = arrival_of(demand->problem, kernel);
    double elements = rows * larger(kernel->tile[1], 1),
           store =
               elements * qn_type_bits(kernel->d.type) / 8 / STORE_PER_CYCLE;

    if (kernel->epilogue >= QN_GRADIENT)
        store = larger(2 * store, elements / GRADIENT);
    else if (kernel->epilogue >= QN_ACTIVATE)
        store = larger(store, elements / ACTIVATE);
    return a ? store * a->store : store;
}

/* The time of a tile, by the formulas above, for k steps of it and groups of m
   rows; `ctas` multiprocessors have one, or more than one. */
static void estimate_tile(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double m, double k,
                          double ctas, struct qn_figures *f)
{
    const double rows = larger(qn_model_dequantize_rows(kernel, m), 1);
    const int lone = kernel->cluster[0] * kernel->cluster[1] <= 1;
    const struct qn_model_reported *r = reported_of(demand, kernel);

    f->math = math_cycles(demand, kernel, rows, k);
    f->copy = copy_cycles(demand, kernel, rows, k, smaller(f->tiles, ctas));
    f->store = store_cycles(demand, kernel, rows);
    if ((!strcmp(kernel->schedule, "pingpong") ||
         !strcmp(kernel->schedule, "overlapped")) &&
        f->tiles > ctas)
        f->store = larger(0, f->store - f->math);
    f->tile_cycles =
        beside(f->math, f->copy, EXPOSED, 4) * (lone ? 1 : MEETING) + f->store +
        (r && r->start > 0 ? r->start : START_CYCLES);
}

/* Bytes that are read more than once. CTAs visit bands of rows of a group,
   column after column: A's part of a band is read again for the next columns
   where L2 cannot hold it next to theirs, and B for each band; CTAs that are
   not in step read some of their part again on their own. */
static double reread(const struct qn_demand *demand,
                     const struct qn_kernel *kernel, const double *lengths,
                     int ctas, double tiles)
{
    const double capacity =
        CAPACITY * (double)qn_model_l2_bytes(demand->device);
    const double groups = demand->problem->groups;
    const double a = operand_bytes(demand, kernel, QN_ROLE_A),
                 b = operand_bytes(demand, kernel, QN_ROLE_B);
    const double rows = larger(1, lengths[0] / larger(kernel->tile[0], 1)),
                 columns = larger(1, lengths[1] / larger(kernel->tile[1], 1));
    const double strips = qn_select_band(demand->problem, kernel, ctas) *
                          larger(kernel->cluster[0], 1);
    const double band = smaller(rows, strips), wave = larger(1, ctas / band);
    const double panel = a / groups * band / rows;
    const double part_a = smaller(
        1, (panel + b / groups * smaller(1, wave / columns)) / capacity);
    const double part_b = smaller(1, (panel + b / groups) / capacity);
    const double copied = tiles / groups *
                          (a / rows / larger(kernel->cluster[1], 1) +
                           b / columns / larger(kernel->cluster[0], 1));

    return a * larger(0, columns / wave - 1) * part_a +
           b * larger(0, rows / band - 1) * part_b +
           LOST * larger(0, copied - a - b) * part_a;
}

/* All groups have rows, or none does, which costs as much as one row. */
static void estimate(const struct qn_demand *demand,
                     const struct qn_kernel *kernel, struct qn_figures *f)
{
    const struct qn_problem *p = demand->problem;
    double lengths[] = {(double)p->m, (double)p->n, (double)p->k};
    double tile_m = larger(kernel->tile[0], 1),
           tile_n = larger(kernel->tile[1], 1);
    int cluster = kernel->cluster[0] * kernel->cluster[1];
    double sms = demand->sms - (cluster > 1 ? demand->sms % cluster : 0);
    int microbatches = qn_select_microbatches(p, kernel);
    const struct qn_model_reported *r = reported_of(demand, kernel);
    int launches =
        ((p->microbatches > 1 ? p->microbatches : 1) + microbatches - 1) /
        microbatches;

    lengths[2] *= microbatches;
    if (p->ragged != QUERN_AXIS_NONE)
        lengths[p->ragged - QUERN_AXIS_M] /= p->groups;
    if (microbatches > 1)
        lengths[2] += microbatches * kernel->tile[2] / 2.0; /* each ends in a
                                                               step */
    lengths[2] += whole(p->lora / larger(kernel->tile[2], 1)) * kernel->tile[2];
    f->tiles = p->groups *
               (qn_model_dequantize_whole(kernel, lengths[0])
                    ? 1
                    : tiles_along(lengths[0], tile_m, stacked(kernel),
                                  p->ragged == QUERN_AXIS_M)) *
               tiles_along(lengths[1], tile_n, kernel->cluster[1],
                           p->ragged == QUERN_AXIS_N);
    f->waves =
        qn_model_dequantize_waves(kernel, whole(f->tiles / larger(sms, 1)));
    estimate_tile(demand, kernel, lengths[0], lengths[2], larger(sms, 1), f);
    f->real = p->groups * lengths[0] * lengths[1] /
              (larger(f->tiles, 1) * tile_m * tile_n);
    f->again = reread(demand, kernel, lengths, (int)sms, f->tiles);
    f->memory_cycles = (moved_bytes(demand, kernel) + f->again) /
                       qn_model_memory(demand->device);
    if (r && p->ragged == QUERN_AXIS_M && lengths[0] < r->small)
        f->memory_cycles /= r->small_memory;
    f->cycles = launches * launch_cycles(p, kernel, f->waves * f->tile_cycles,
                                         f->memory_cycles);
    qn_fuse_estimate(demand, kernel, f);
}

void qn_model_estimate(const struct qn_demand *demand,
                       const struct qn_kernel *kernel, struct qn_figures *f)
{
    struct qn_problem problem = *demand->problem;
    struct qn_demand filled = *demand;

    if (problem.ragged == QUERN_AXIS_M && problem.m < problem.groups)
        problem.groups = problem.m > 0 ? (int)problem.m : 1;
    filled.problem = &problem;
    estimate(&filled, kernel, f);
}

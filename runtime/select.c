/*
** select.c: which kernels serve a problem, and which of them is best.
**
** A kernel serves a problem of its own epilogue; one that scales serves all.
** A kernel of the variant is excluded by its architecture, by a `requires`
** that fails, or by an operand that has no tensor map. Those that are left
** are ordered by a model:
**
**     groups have the same length; a group's end wastes half a tile:
**     tiles  = G * max(1, L/tile_m + 1/2) * ceil(n / tile_n)      L = m / G
**              columns rounded up to whole clusters; rows are not, since a
**              pair along m turns to lie along n where one is left over
**     waves  = ceil(tiles / CTAs)           CTAs: a multiple of the cluster
**     math   = tile_m * tile_n * k / FMA per cycle; mma.sync (kernels
**              without tensor maps) does half as many, FP8 twice as many
**              where codes are expanded, what that takes if it is more
**              (expand.c)
**     copy   = (tile_m/cluster_n + tile_n/cluster_m) * k * bytes / L2 rate
**              * max(1, k / DRIFT): CTAs fall out of step, and after so many
**              steps L2 has lost what the last of them asks for
**              an operand's part times the lines that a row of 128 bytes lies
**              in, where rows begin anywhere: 2 - gcd(pitch, 128) / 128,
**              and 1.5 more where the pitch is no multiple of 32 bytes
**     store  = tile_m * tile_n * bytes of D / STORE rate; pingpong hides it
**              behind the other warpgroup's math
**              where it goes back through an activation at least what that
**              takes, tile_m * tile_n / GRADIENT
**     tile   = max(math, copy) + store + START
**     memory = (A + B + D once, and C if it is read) / memory rate
**     launch = max(waves * tile, memory)
**              where C is read, by how it arrives:
**              "reduce"  max(1.03 waves * tile, 1.5 memory)
**              "fetch"   max(1.02 waves * tile, 1.05 memory)
**              others    max(waves * tile, 1.2 memory)
**                        + min(waves * tile, memory) / 2
**
** What quantizes A is counted in streamed.c. The L2 rate is that of the
** multiprocessor's port: 128 x 128 asks for all of it, tiles of 64 rows for
** more, wider ones for less (bench/NOTES.md, 6). All this is in cycles; bytes
** out of L2 also cost power, and so clock: kernels are ordered by a launch
** whose tiles take 0.15 of their copies longer (lone CTAs three quarters of
** that; bench/NOTES.md, 8). The tuner replaces the model where it measured.
*/
#include "select.h"
#include "expand.h"
#include "expr.h"
#include "streamed.h"
#include "tensormap.h"
#include "types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPANDED         4.0     /* mma.sync on unpacked values: its math */
#define L2_PER_CYCLE     62.0    /* bytes into one multiprocessor, of 64 */
#define STORE_PER_CYCLE  32.0    /* bytes out of one multiprocessor */
#define MEMORY_PER_CYCLE 2300.0  /* bytes, the whole chip */
#define GRADIENT         2.5     /* elements a cycle, bench/NOTES.md, 14 */
#define START_CYCLES     1200.0  /* first copies of a tile, its barriers */
#define MEETING_CYCLES   20.0    /* CTAs of a cluster wait for each other */
#define SECTORS          1.5     /* of rows that begin within one of 32 bytes */
#define DRIFT            20480.0 /* steps of k */
#define L2_EFFORT        0.15    /* of cycles of copies */
#define TOGETHER         0.75    /* of what lone CTAs get leaves L2 */

/*
** What C costs, by how it arrives: factors of the computation and of plain
** copies, and the part of the smaller of both that the other does not hide.
** "fetch" has fewer stages and shares the copy engine with A and B. The last
** row is for all others.
*/
static const struct arrival {
    const char *addend;
    double compute, memory, exposed;
} arrivals[] = {
    {"reduce", 1.03, 1.5, 0.0}, /* fp32 sums in L2 */
    {"fetch", 1.02, 1.05, 0.0},
    {"read", 1.0, 1.2, 0.5}, /* by the math warps */
};

int qn_select_parts(const struct quern_problem *p,
                    const struct qn_kernel *kernel)
{
    int wanted = p->parts > 1 ? p->parts : 1;
    int parts = kernel->parts > 1 ? kernel->parts : 1;

    return parts < wanted ? parts : wanted;
}

/* What the variant is but for the type of D and the epilogue. */
static int same_product(const struct quern_problem *p,
                        const struct qn_kernel *kernel)
{
    return kernel->op == p->op && kernel->ragged == p->ragged &&
           kernel->a.major == p->a_major && kernel->b.major == p->b_major &&
           !strcmp(kernel->recipe, p->recipe);
}

int qn_select_variant(const struct quern_problem *p,
                      const struct qn_kernel *kernel)
{
    return same_product(p, kernel) && kernel->d.type == p->d_type &&
           qn_streamed_serves(p->quantize, kernel->quantize) &&
           qn_tensormap_takes(kernel, QN_PARAM_bases) ==
               (p->expand == QUERN_EXPAND_F16) &&
           qn_problem_takes(p, kernel->epilogue, kernel->activation,
                            kernel->interleave);
}

int qn_select_arch(const char *arch, const struct qn_device *device)
{
    int number, ours = device->major * 10 + device->minor;
    char suffix = 0;

    if (sscanf(arch, "sm_%d%c", &number, &suffix) < 1)
        return 0;
    if (suffix == 'a')
        return number == ours;
    return number / 10 == device->major && number <= ours;
}

int qn_select_pointers(const struct quern_problem *p,
                       const struct qn_kernel *kernel, int role)
{
    static const int params[QN_ROLES] = {
        [QN_ROLE_A] = QN_PARAM_a_pointers,
        [QN_ROLE_B] = QN_PARAM_b_pointers,
        [QN_ROLE_C] = QN_PARAM_c_pointers,
        [QN_ROLE_D] = QN_PARAM_d_pointers,
        [QN_ROLE_P] = -1,
        [QN_ROLE_T] = -1,
    };
    /* where D is added to, it may be read as C */
    int also_c = role == QN_ROLE_D && p->beta == QUERN_BETA_ONE &&
                 qn_tensormap_takes(kernel, QN_PARAM_c);

    return qn_tensormap_takes(kernel, params[role]) &&
           (!also_c || qn_tensormap_takes(kernel, QN_PARAM_c_pointers));
}

/*
** The CTAs at work share rows of A and columns of B, and L2 holds neither for
** the next wave where k is long: then as many rows as columns is the least to
** read. A few rows less also suit a short k (bench/NOTES.md, 6). Counted in
** clusters.
*/
int qn_select_band(const struct quern_problem *p,
                   const struct qn_kernel *kernel, int ctas)
{
    int tile = kernel->tile[p->ragged == QUERN_AXIS_N] *
               (kernel->cluster[0] > 1 ? kernel->cluster[0] : 1);
    long long area = (long long)kernel->tile[0] * kernel->tile[1] * ctas;
    long long side = 1;

    if (tile < 1)
        return 1;
    while (side * side < area)
        side += tile;
    side = side * 7 / 8 / tile;
    return side > 0 ? (int)side : 1;
}

/* ------------------------------------------------------------ applicability */

/* The machine's side: architecture, shared memory, what is linked. */
static int check_backend(const struct qn_demand *demand,
                         const struct qn_kernel *kernel, char *reason,
                         size_t size)
{
    int host = !strcmp(kernel->arch, "host");

    if (demand->backend == QUERN_BACKEND_HOST) {
        if (!host)
            snprintf(reason, size, "made for %s, not for the host",
                     kernel->arch);
        return host;
    }
    if (host || !qn_select_arch(kernel->arch, demand->device)) {
        snprintf(reason, size, "made for %s, not for sm_%d%d", kernel->arch,
                 demand->device->major, demand->device->minor);
        return 0;
    }
    if (demand->backend == QUERN_BACKEND_AOT && !kernel->cubin) {
        snprintf(reason, size, "not linked into this program");
        return 0;
    }
    if (kernel->smem > demand->device->shared_bytes) {
        snprintf(reason, size,
                 "takes %d bytes of shared memory, this GPU "
                 "has %d",
                 kernel->smem, demand->device->shared_bytes);
        return 0;
    }
    return 1;
}

/* The spec's side. A rule without a value excludes, too. */
int qn_select_requires(const struct quern_problem *p,
                       const struct qn_kernel *kernel, char *reason,
                       size_t size)
{
    const struct qn_expr_values values = {p->m, p->n, p->k, p->groups};

    for (int i = 0; i < kernel->nrequires; i++) {
        const struct qn_requires *rule = &kernel->requires[i];
        int64_t holds;
        const char *error = qn_expr_eval(rule->text, &values, &holds);

        if (error)
            snprintf(reason, size, "its rule \"%s\" has no value: %s",
                     rule->text, error);
        else if (!holds)
            snprintf(reason, size, "%s: %s is false", rule->reason, rule->text);
        if (error || !holds)
            return 0;
    }
    return 1;
}

/* Addresses that the kernel would not look at. */
static int check_pointers(const struct quern_problem *p,
                          const struct qn_kernel *kernel, char *reason,
                          size_t size)
{
    for (int role = QN_ROLE_A; role <= QN_ROLE_D; role++)
        if (p->pointers >> role & 1 && !qn_select_pointers(p, kernel, role)) {
            snprintf(reason, size,
                     "takes %c in one buffer, the problem says pointers=%c",
                     QN_LETTERS[role], QN_LETTERS[role]);
            return 0;
        }
    return 1;
}

/* What a kernel pays for merging, nobody should who merges nothing. */
static int check_parts(const struct quern_problem *p,
                       const struct qn_kernel *kernel, char *reason,
                       size_t size)
{
    int always = qn_tensormap_takes(kernel, QN_PARAM_part_maps);

    if (!always || p->parts > 1)
        return 1;
    snprintf(reason, size,
             "merges up to %d products, the problem does not say parts=N",
             kernel->parts);
    return 0;
}

/* The operands' side: TMA has rules that no spec need repeat. */
static int check_maps(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, char *reason, size_t size)
{
    for (int i = 0; i < QN_MAPS; i++) {
        const struct qn_map_param *param = &qn_tensormap_params[i];
        struct qn_geometry g;
        struct qn_map map;

        if (!qn_tensormap_needs(kernel, param->param))
            continue;
        if (qn_problem_alignment(demand->problem, QUERN_BF16) < QN_ALIGNMENT) {
            snprintf(reason, size,
                     "TMA needs rows at multiples of %d bytes, the problem "
                     "promises align=%d",
                     QN_ALIGNMENT, demand->problem->alignment);
            return 0;
        }
        qn_geometry_of(demand->problem, demand->recipe, param->role, &g);
        qn_tensormap_geometry(&g, param->kind, &g);
        if (!qn_tensormap_build(&g, qn_tensormap_operand(kernel, param),
                                param->kind, 0, 0, &map, reason, size))
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------- model */

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

/* Of all operands, packed; A and B of so many products. */
static double moved_bytes(const struct qn_demand *demand, int parts)
{
    struct qn_geometry g;
    double bytes = 0;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if ((role == QN_ROLE_C && demand->problem->beta == QUERN_BETA_ZERO) ||
            !qn_geometry_has(demand->problem, role))
            continue;
        qn_geometry_of(demand->problem, demand->recipe, role, &g);
        bytes += (double)qn_geometry_bytes(&g, 0, 0) *
                 (role <= QN_ROLE_B ? parts : 1);
    }
    return bytes;
}

/* Of one group; CTAs side by side start together, needed or not. */
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
static double launch_cycles(const struct quern_problem *p,
                            const struct qn_kernel *kernel, double compute,
                            double memory)
{
    const struct arrival *a = arrivals;

    if (p->beta == QUERN_BETA_ZERO)
        return larger(compute, memory);
    while (a < &arrivals[sizeof arrivals / sizeof *arrivals - 1] &&
           strcmp(a->addend, kernel->addend))
        a++;
    return larger(compute * a->compute, memory * a->memory) +
           smaller(compute, memory) * a->exposed;
}

/* Copying a row of 128 bytes takes so many times as long as one that is a line
   of L2: bench/NOTES.md, 6. */
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

/* What a tile takes, by the formulas above, for k steps of it. */
static void estimate_tile(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double k,
                          struct qn_figures *f)
{
    double tile_m = larger(kernel->tile[0], 1),
           tile_n = larger(kernel->tile[1], 1);
    double a = qn_streamed_bytes(kernel),
           b = qn_type_bits(kernel->b.type) / 8.0;

    f->math = tile_m * tile_n * k / QN_FMA_PER_CYCLE;
    if (!uses_maps(kernel))
        f->math *= a < 2 || b < 2 ? EXPANDED : 2;
    else if (qn_expand_does(kernel))
        f->math = larger(f->math, qn_expand_cycles(kernel, k, f->math));
    else if (b < 2)
        f->math /= 2;
    f->math = larger(f->math, qn_streamed_tile(kernel, k));
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

/*
** Cycles of the tiles, and bytes out of L2, which cost power and so clock. Of
** those a lone CTA causes fewer than it gets: what neighbours ask for at about
** the same time is read once. CTAs of a cluster wait for each other.
*/
static double effort(const struct qn_kernel *kernel, const struct qn_figures *f)
{
    if (kernel->cluster[0] * kernel->cluster[1] <= 1)
        return f->waves * (f->tile_cycles + f->copy * TOGETHER * L2_EFFORT);
    return f->waves * (f->tile_cycles + f->copy * L2_EFFORT + MEETING_CYCLES);
}

/* The whole launch, or as many as the problem's parts take. */
static void estimate(const struct qn_demand *demand,
                     const struct qn_kernel *kernel, struct qn_figures *f)
{
    const struct quern_problem *p = demand->problem;
    double lengths[] = {(double)p->m, (double)p->n, (double)p->k};
    double tile_m = larger(kernel->tile[0], 1),
           tile_n = larger(kernel->tile[1], 1);
    int cluster = kernel->cluster[0] * kernel->cluster[1];
    double sms = demand->sms - (cluster > 1 ? demand->sms % cluster : 0);
    int parts = qn_select_parts(p, kernel);
    int launches = ((p->parts > 1 ? p->parts : 1) + parts - 1) / parts;

    lengths[2] *= parts;
    if (p->ragged != QUERN_AXIS_NONE)
        lengths[p->ragged - QUERN_AXIS_M] /= p->groups;
    estimate_tile(demand, kernel, lengths[2], f);
    f->tiles = p->groups *
               tiles_along(lengths[0], tile_m, 1, p->ragged == QUERN_AXIS_M) *
               tiles_along(lengths[1], tile_n, kernel->cluster[1],
                           p->ragged == QUERN_AXIS_N);
    f->waves = whole(f->tiles / larger(sms, 1));
    f->real = p->groups * lengths[0] * lengths[1] /
              (larger(f->tiles, 1) * tile_m * tile_n);
    f->memory_cycles = moved_bytes(demand, parts) / MEMORY_PER_CYCLE;
    f->cycles = launches * launch_cycles(p, kernel, f->waves * f->tile_cycles,
                                         f->memory_cycles);
    f->effort = effort(kernel, f);
    f->order = launches * launch_cycles(p, kernel, f->effort, f->memory_cycles);
    qn_streamed_estimate(demand, kernel, MEMORY_PER_CYCLE, f);
    if (p->quantize)
        f->order = f->cycles;
}

/* -------------------------------------------------------------------- list */

/* The first rule that fails is the reason. */
static void judge(const struct qn_demand *demand, struct qn_choice *choice)
{
    const struct qn_kernel *kernel = choice->candidate->kernel;
    char *reason = choice->reason;
    size_t size = sizeof choice->reason;

    if (demand->kernel && strcmp(demand->kernel, kernel->name)) {
        snprintf(reason, size, "the options name another kernel");
        return;
    }
    choice->fits = check_backend(demand, kernel, reason, size) &&
                   qn_select_requires(demand->problem, kernel, reason, size) &&
                   check_pointers(demand->problem, kernel, reason, size) &&
                   check_parts(demand->problem, kernel, reason, size) &&
                   check_maps(demand, kernel, reason, size);
    if (!choice->fits)
        return;
    estimate(demand, kernel, &choice->figures);
    choice->wanted = qn_streamed_wanted(demand->problem->quantize, kernel);
}

/* By the model. Of two that wait for memory alike the one of less effort comes
   first, then the one for the architecture that is closer to the GPU's, and the
   one that scales needlessly last; then a name decides, so that the order is
   fixed. */
static int compare(const void *left, const void *right)
{
    const struct qn_choice *a = left, *b = right;
    int closer;

    if (a->fits != b->fits)
        return b->fits - a->fits;
    if (a->fits && a->wanted != b->wanted)
        return b->wanted - a->wanted;
    if (a->fits && a->figures.order != b->figures.order)
        return a->figures.order < b->figures.order ? -1 : 1;
    if (a->fits && a->figures.effort != b->figures.effort)
        return a->figures.effort < b->figures.effort ? -1 : 1;
    closer = strcmp(b->candidate->kernel->arch, a->candidate->kernel->arch);
    if (a->fits && closer)
        return closer;
    if (a->candidate->kernel->epilogue != b->candidate->kernel->epilogue)
        return a->candidate->kernel->epilogue - b->candidate->kernel->epilogue;
    return strcmp(a->candidate->kernel->name, b->candidate->kernel->name);
}

int qn_select_list(struct quern_context *ctx, const struct qn_demand *demand,
                   struct qn_choice **list, int *count)
{
    struct qn_choice *choices;
    int n = 0;

    for (int i = 0; i < ctx->nkernels; i++)
        n += qn_select_variant(demand->problem, ctx->kernels[i].kernel);
    choices = calloc((size_t)n + 1, sizeof *choices);
    if (!choices)
        return qn_error_memory();
    n = 0;
    for (int i = 0; i < ctx->nkernels; i++)
        if (qn_select_variant(demand->problem, ctx->kernels[i].kernel)) {
            choices[n].candidate = &ctx->kernels[i];
            judge(demand, &choices[n++]);
        }
    qsort(choices, (size_t)n, sizeof *choices, compare);
    *list = choices;
    *count = n;
    return QUERN_OK;
}

int qn_select_best(struct quern_context *ctx, const struct qn_demand *demand,
                   struct qn_choice *best)
{
    struct qn_demand one = *demand;
    struct qn_choice *list;
    int count, found;

    if (demand->backend == QUERN_BACKEND_AUTO) {
        one.backend = QUERN_BACKEND_AOT;
        found = qn_select_best(ctx, &one, best);
        if (found)
            return found;
        one.backend = QUERN_BACKEND_JIT;
    }
    if (qn_select_list(ctx, &one, &list, &count))
        return -1;
    found = count > 0 && list[0].fits;
    if (found)
        *best = list[0];
    free(list);
    return found;
}

/* What the kernels of the problem's layout and ragged axis write. */
static int add_outputs(struct quern_context *ctx, const struct quern_problem *p)
{
    static const char *const epilogues[] = {
        "beta=0",
        "beta=1",
        "any alpha, beta=0",
        "any alpha and beta",
        "bias and activation",
        "copies of that",
        "an activation, whose gradient it makes",
        "copies of that, too"};
    unsigned seen[8] = {0}; /* a bit for each type of D */
    int count = 0;

    for (int i = 0; i < ctx->nkernels; i++) {
        const struct qn_kernel *kernel = ctx->kernels[i].kernel;
        unsigned bit = 1u << kernel->d.type;

        if (!same_product(p, kernel) || (seen[kernel->epilogue] & bit))
            continue;
        seen[kernel->epilogue] |= bit;
        qn_error_add("  there are kernels for d=%s and %s",
                     qn_type_name(kernel->d.type), epilogues[kernel->epilogue]);
        count++;
    }
    return count;
}

/* The layouts and ragged axes that the recipe and op do have. */
static int add_layouts(struct quern_context *ctx, const struct quern_problem *p)
{
    unsigned seen = 0; /* a bit for each layout and ragged axis */

    for (int i = 0; i < ctx->nkernels; i++) {
        const struct qn_kernel *kernel = ctx->kernels[i].kernel;
        unsigned bit = 1u << (kernel->a.major << 1 | kernel->b.major |
                              kernel->ragged << 2);

        if (kernel->op != p->op || strcmp(kernel->recipe, p->recipe) ||
            (seen & bit))
            continue;
        seen |= bit;
        qn_error_add("  there are kernels for layout=%s ragged=%s",
                     qn_layout_name(kernel->a.major, kernel->b.major),
                     qn_axis_name(kernel->ragged));
    }
    return seen != 0;
}

/* No kernel has the variant: say which ones are nearest to it. */
static void add_variants(struct quern_context *ctx,
                         const struct quern_problem *p)
{
    if (!add_outputs(ctx, p) && !add_layouts(ctx, p))
        qn_error_add("  there is none for %s %s at all", qn_op_name(p->op),
                     p->recipe);
}

int qn_select_none(struct quern_context *ctx, const struct qn_demand *demand,
                   const struct qn_choice *list, int count)
{
    const struct quern_problem *p = demand->problem;
    char text[512];

    quern_problem_print(p, text, sizeof text);
    qn_error_set(QUERN_ENOKERNEL, "no kernel of backend %s serves '%s'",
                 qn_backend_name(demand->backend), text);
    for (int i = 0; i < count; i++)
        qn_error_add("  %s: %s", list[i].candidate->kernel->name,
                     list[i].reason);
    if (count == 0)
        add_variants(ctx, p);
    return QUERN_ENOKERNEL;
}

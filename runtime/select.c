/*
** select.c: which kernels serve a problem, and which of them is best.
**
** A kernel of the variant is excluded by its architecture, by a `requires`
** that fails, or by an operand that has no tensor map. Those that are left
** are ordered by a model:
**
**     groups have the same length; a group's end wastes half a tile:
**     tiles  = G * max(1, L/tile_m + 1/2) * ceil(n / tile_n)      L = m / G
**              each factor rounded up to whole clusters
**     waves  = ceil(tiles / CTAs)           CTAs: a multiple of the cluster
**     math   = tile_m * tile_n * k / FMA per cycle
**     store  = tile_m * tile_n * bytes of D / STORE rate; pingpong hides it
**              behind the other warpgroup's math
**     tile   = math + store + START
**     memory = (A + B + D once) / memory rate
**     launch = max(waves * tile, memory)
**
** The copies of A and B cost no time of their own: where they bind, all of a
** shape's kernels wait for memory alike. STORE and START were fitted to every
** kernel on 22 problems (bench/NOTES.md, 2): the model's choice took 0.1 %
** longer than the best, on average. The tuner replaces the model where it has
** measured.
*/
#include "select.h"
#include "expr.h"
#include "tensormap.h"
#include "types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FMA_PER_CYCLE    2048.0 /* dense 16-bit, one multiprocessor */
#define STORE_PER_CYCLE  32.0   /* bytes out of one multiprocessor */
#define MEMORY_PER_CYCLE 2300.0 /* bytes, the whole chip */
#define START_CYCLES     1200.0 /* first copies of a tile, its barriers */

int qn_select_variant(const struct quern_problem *p,
                      const struct qn_kernel *kernel)
{
    return kernel->op == p->op && kernel->ragged == p->ragged &&
           kernel->a.major == p->a_major && kernel->b.major == p->b_major &&
           kernel->d.type == p->d_type && !strcmp(kernel->recipe, p->recipe);
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
static int check_requires(const struct quern_problem *p,
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

/* The operands' side: TMA has rules that no spec need repeat. */
static int check_maps(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, char *reason, size_t size)
{
    const struct qn_operand *operands[] = {&kernel->a, &kernel->b, &kernel->d};

    for (int i = 0; i < QN_MAPS; i++) {
        const struct qn_map_param *param = &qn_tensormap_params[i];
        struct qn_geometry g;
        struct qn_map map;

        if (!qn_tensormap_used(kernel, param))
            continue;
        qn_geometry_of(demand->problem, demand->recipe, param->role, &g);
        if (!qn_tensormap_build(&g, operands[param->role], param->ragged,
                                g.columns, &map, reason, size))
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------- model */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Rounded up; no figure here comes near 2^63. */
static double whole(double a)
{
    double down = (double)(int64_t)a;

    return down < a ? down + 1 : down;
}

/* Packed. */
static double operand_bytes(const struct qn_demand *demand, int role)
{
    struct qn_geometry g;

    qn_geometry_of(demand->problem, demand->recipe, role, &g);
    return (double)qn_geometry_bytes(&g, g.columns);
}

/* Of one group; a cluster's CTAs start together, needed or not. */
static double tiles_along(double length, double tile, int cluster, int ragged)
{
    if (cluster > 1)
        tile *= cluster;
    length = ragged ? larger(1, length / tile + 0.5) : whole(length / tile);
    return cluster > 1 ? length * cluster : length;
}

/* The formulas above. */
static void estimate(const struct qn_demand *demand,
                     const struct qn_kernel *kernel, struct qn_figures *f)
{
    const struct quern_problem *p = demand->problem;
    double lengths[] = {(double)p->m, (double)p->n, (double)p->k};
    double tile_m = larger(kernel->tile[0], 1),
           tile_n = larger(kernel->tile[1], 1);
    double bytes = qn_type_bits(kernel->a.type) / 8.0;
    int cluster = kernel->cluster[0] * kernel->cluster[1];
    double sms = demand->sms - (cluster > 1 ? demand->sms % cluster : 0);
    double math, store;

    if (p->ragged != QUERN_AXIS_NONE)
        lengths[p->ragged - QUERN_AXIS_M] /= p->groups;
    math = tile_m * tile_n * lengths[2] / (FMA_PER_CYCLE * 2 / bytes);
    store =
        tile_m * tile_n * qn_type_bits(kernel->d.type) / 8 / STORE_PER_CYCLE;
    if (!strcmp(kernel->schedule, "pingpong"))
        store = larger(0, store - math);
    f->tiles = p->groups *
               tiles_along(lengths[0], tile_m, kernel->cluster[0],
                           p->ragged == QUERN_AXIS_M) *
               tiles_along(lengths[1], tile_n, kernel->cluster[1],
                           p->ragged == QUERN_AXIS_N);
    f->waves = whole(f->tiles / larger(sms, 1));
    f->tile_cycles = math + store + START_CYCLES;
    f->memory_cycles =
        (operand_bytes(demand, QN_ROLE_A) + operand_bytes(demand, QN_ROLE_B) +
         operand_bytes(demand, QN_ROLE_D)) /
        MEMORY_PER_CYCLE;
    f->cycles = larger(f->waves * f->tile_cycles, f->memory_cycles);
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
                   check_requires(demand->problem, kernel, reason, size) &&
                   check_maps(demand, kernel, reason, size);
    if (choice->fits)
        estimate(demand, kernel, &choice->figures);
}

/* By the model; a name decides between equals, so that the order is fixed. */
static int compare(const void *left, const void *right)
{
    const struct qn_choice *a = left, *b = right;

    if (a->fits != b->fits)
        return b->fits - a->fits;
    if (a->fits && a->figures.cycles != b->figures.cycles)
        return a->figures.cycles < b->figures.cycles ? -1 : 1;
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

/* No kernel has the variant: say which ones the recipe and op do have. */
static void add_variants(struct quern_context *ctx,
                         const struct quern_problem *p)
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
    if (!seen)
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
** select.c: which kernels serve a problem, and which of them is best.
**
** A kernel serves a problem of its own epilogue; one that scales serves all.
** A kernel of the variant is excluded by its architecture, by a `requires`
** that fails, or by an operand that has no tensor map. Those that are left
** are ordered by a model (model.c).
*/
#include "choose/select.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/tensormap.h"
#include "device/driver.h"
#include "problem/epilogue_rules.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/problem.h"
#include "problem/quantize.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ applicability */

/* The machine's side: architecture, shared memory, linked kernels. */
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

/* Addresses that the kernel would not look at. */
static int check_pointers(const struct qn_problem *p,
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

/* Merging kernels carry overhead: use one only if microbatches > 1. */
static int check_parts(const struct qn_problem *p,
                       const struct qn_kernel *kernel, char *reason,
                       size_t size)
{
    int always = qn_tensormap_takes(kernel, QN_PARAM_microbatch_maps);

    if (!always || p->microbatches > 1)
        return 1;
    snprintf(
        reason, size,
        "merges up to %d products, the problem does not say microbatches=N",
        kernel->microbatches);
    return 0;
}

/* The operands' side: TMA has rules that no spec need repeat. */
static int check_maps(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, char *reason, size_t size)
{
    for (int i = 0; i < QN_MAPS; i++) {
        const struct qn_map_param *param = &qn_tensormap_params[i];
        struct qn_geometry g, numbers;
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
        if (!qn_tensormap_build(qn_tensormap_geometry(demand->problem, &g,
                                                      param->kind, &numbers),
                                qn_tensormap_operand(kernel, param),
                                param->kind, 0, 0, &map, reason, size))
            return 0;
    }
    return 1;
}

/* -------------------------------------------------------------------- list */

/* All but the machine's side. */
static int check_problem(const struct qn_demand *demand,
                         const struct qn_kernel *kernel, char *reason,
                         size_t size)
{
    return qn_select_requires(demand->problem, kernel, reason, size) &&
           check_pointers(demand->problem, kernel, reason, size) &&
           check_parts(demand->problem, kernel, reason, size) &&
           check_maps(demand, kernel, reason, size);
}

int qn_select_fits(const struct qn_problem *p, const struct qn_recipe *recipe,
                   const struct qn_kernel *kernel)
{
    const struct qn_demand demand = {.problem = p, .recipe = recipe};
    char reason[256];

    return check_problem(&demand, kernel, reason, sizeof reason);
}

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
                   check_problem(demand, kernel, reason, size);
    if (!choice->fits)
        return;
    qn_model_estimate(demand, kernel, &choice->figures);
    choice->wanted = qn_fuse_wanted(demand->problem->quantize, kernel);
}

/* By the model. If two are alike, the one for the architecture that is closer
   to the GPU's comes first, and the one that scales needlessly last; then a
   name decides, so that the order is fixed. */
static int compare(const void *left, const void *right)
{
    const struct qn_choice *a = left, *b = right;
    int closer;

    if (a->fits != b->fits)
        return b->fits - a->fits;
    if (a->fits && a->wanted != b->wanted)
        return b->wanted - a->wanted;
    if (a->fits && a->figures.cycles != b->figures.cycles)
        return a->figures.cycles < b->figures.cycles ? -1 : 1;
    closer = strcmp(b->candidate->kernel->arch, a->candidate->kernel->arch);
    if (a->fits && closer)
        return closer;
    if (a->candidate->kernel->epilogue != b->candidate->kernel->epilogue)
        return a->candidate->kernel->epilogue - b->candidate->kernel->epilogue;
    return strcmp(a->candidate->kernel->name, b->candidate->kernel->name);
}

/* Kernels that fit stay only if they have the first order of sums that any has,
   which depends on no number of rows. */
static void keep_order(struct qn_choice *list, int count)
{
    int least = INT_MAX;

    for (int i = 0; i < count; i++)
        if (list[i].fits && qn_select_sums(list[i].candidate->kernel) < least)
            least = qn_select_sums(list[i].candidate->kernel);
    for (int i = 0; i < count; i++)
        if (list[i].fits &&
            qn_select_sums(list[i].candidate->kernel) != least) {
            list[i].fits = 0;
            snprintf(list[i].reason, sizeof list[i].reason,
                     "adds along k in another order than kernels for other "
                     "counts of tokens");
        }
}

int qn_select_list(struct quern_context *ctx, const struct qn_demand *demand,
                   struct qn_choice **list, int *count)
{
    const struct qn_problem *p = demand->problem;
    const struct qn_kernel_list kernels =
        qn_context_kernels(ctx, p->op, p->recipe);
    struct qn_choice *choices;
    int n = 0;

    for (int i = 0; i < kernels.count; i++)
        n += qn_select_variant(p, ctx->kernels[kernels.at[i]].kernel);
    choices = calloc((size_t)n + 1, sizeof *choices);
    if (!choices)
        return qn_error_memory();
    n = 0;
    for (int i = 0; i < kernels.count; i++) {
        const struct qn_candidate *candidate = &ctx->kernels[kernels.at[i]];

        if (!qn_select_variant(p, candidate->kernel))
            continue;
        choices[n].candidate = candidate;
        judge(demand, &choices[n++]);
    }
    if (demand->same_sums)
        keep_order(choices, n);
    qsort(choices, (size_t)n, sizeof *choices, compare);
    *list = choices;
    *count = n;
    return QUERN_OK;
}

int qn_select_backends(const struct quern_context *ctx, int backend,
                       int backends[2])
{
    const int is_auto = backend == QUERN_BACKEND_AUTO;
    int count = 0;

    if (!is_auto || ctx->linked)
        backends[count++] = is_auto ? QUERN_BACKEND_AOT : backend;
    if (is_auto)
        backends[count++] = QUERN_BACKEND_JIT;
    return count;
}

int qn_select_best(struct quern_context *ctx, const struct qn_demand *demand,
                   struct qn_choice *best)
{
    struct qn_demand one = *demand;
    int backends[2], found = 0;
    const int tries = qn_select_backends(ctx, demand->backend, backends);

    for (int i = 0; i < tries && !found; i++) {
        struct qn_choice *list;
        int count;

        one.backend = backends[i];
        if (qn_select_list(ctx, &one, &list, &count))
            return -1;
        found = count > 0 && list[0].fits;
        if (found)
            *best = list[0];
        free(list);
    }
    return found;
}

int qn_select_cycles(struct quern_context *ctx, const struct qn_demand *demand,
                     const struct qn_problem *p, int *served, double *cycles)
{
    struct qn_demand other = *demand;
    struct qn_choice best;
    int found;

    other.problem = p;
    other.recipe = qn_context_recipe(ctx, p->recipe);
    found = qn_select_best(ctx, &other, &best);
    *served = found > 0;
    if (*served)
        *cycles += best.figures.cycles;
    return found < 0 ? QUERN_ENOMEM : QUERN_OK;
}

/* The output types of the kernels of the problem's layout and ragged axis. */
static int add_outputs(struct quern_context *ctx, const struct qn_problem *p)
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
    const struct qn_kernel_list list =
        qn_context_kernels(ctx, p->op, p->recipe);
    unsigned seen[8] = {0}; /* a bit for each type of D */
    int count = 0;

    for (int i = 0; i < list.count; i++) {
        const struct qn_kernel *kernel = ctx->kernels[list.at[i]].kernel;
        unsigned bit = 1u << kernel->d.type;

        if (!qn_select_product(p, kernel) || (seen[kernel->epilogue] & bit))
            continue;
        seen[kernel->epilogue] |= bit;
        qn_error_add("  there are kernels for d=%s and %s",
                     qn_type_name(kernel->d.type), epilogues[kernel->epilogue]);
        count++;
    }
    return count;
}

/* The layouts and ragged axes that the recipe and op do have. */
static int add_layouts(struct quern_context *ctx, const struct qn_problem *p)
{
    const struct qn_kernel_list list =
        qn_context_kernels(ctx, p->op, p->recipe);
    unsigned seen = 0; /* a bit for each layout and ragged axis */

    for (int i = 0; i < list.count; i++) {
        const struct qn_kernel *kernel = ctx->kernels[list.at[i]].kernel;
        unsigned bit = 1u << (kernel->a.major << 1 | kernel->b.major |
                              kernel->ragged << 2);

        if (seen & bit)
            continue;
        seen |= bit;
        qn_error_add("  there are kernels for layout=%s ragged=%s",
                     qn_layout_name(kernel->a.major, kernel->b.major),
                     qn_axis_name(kernel->ragged));
    }
    return seen != 0;
}

/* The recipe's types of an operand that no kernel multiplies. */
static void add_operands(const struct qn_problem *p,
                         const struct qn_recipe *recipe)
{
    int types[2], bare[2], of[2];

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        struct qn_quantization q;

        bare[role] = !qn_scale_source(p, recipe, role, &q);
        of[role] = q.of;
        types[role] = qn_quantize_element(&q, recipe);
        if (bare[role] && qn_type_bits(types[role]) <= 8)
            qn_error_add(
                "  it keeps %s as %s without a scale, and operands without "
                "scale is bf16 or f16; write: scale = blocked { ... }",
                qn_of_name(of[role]), qn_type_name(types[role]));
        else if (types[role] == QUERN_F32)
            qn_error_add(
                "  it keeps %s as f32, and operands without a scale are bf16 "
                "or f16",
                qn_of_name(of[role]));
    }
    if (bare[0] && bare[1] && types[0] != types[1])
        qn_error_add(
            "  it keeps %s as %s and %s as %s, and operands without a scale "
            "are of one type on both sides",
            qn_of_name(of[0]), qn_type_name(types[0]), qn_of_name(of[1]),
            qn_type_name(types[1]));
}

/* No kernel has the variant: say which ones are nearest to it. */
static void add_variants(struct quern_context *ctx, const struct qn_problem *p)
{
    const struct qn_recipe *recipe = qn_context_recipe(ctx, p->recipe);

    if (add_outputs(ctx, p) || add_layouts(ctx, p))
        return;
    qn_error_add("  there is none for %s %s at all", qn_op_name(p->op),
                 p->recipe);
    if (recipe)
        add_operands(p, recipe);
}

/* Are there kernels for the host, and for nothing else? */
static int host_alone(const struct qn_choice *list, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].candidate->kernel->arch, "host") != 0)
            return 0;
    return 1;
}

/* No GPU has the product, or none fuses it and two launches cannot do it. */
static void add_host_alone(const struct qn_demand *demand)
{
    const struct qn_problem *p = demand->problem;

    if (qn_epilogue_lacks_sums(p, demand->recipe))
        qn_error_add("  a bias, an activation or adapters in a launch of their "
                     "own follow fp32 sums: recipe %s must write f32",
                     p->recipe);
    else
        qn_error_add("  only the host has %s of %s; docs/recipes.md lists the "
                     "recipes of GPUs",
                     qn_op_name(p->op), p->recipe);
}

int qn_select_none(struct quern_context *ctx, const struct qn_demand *demand,
                   const struct qn_choice *list, int count)
{
    const struct qn_problem *p = demand->problem;
    char text[512];

    qn_problem_print(p, text, sizeof text);
    qn_error_set(QUERN_ENOKERNEL, "no kernel of backend %s serves '%s'",
                 qn_backend_name(demand->backend), text);
    for (int i = 0; i < count; i++)
        qn_error_add("  %s: %s", list[i].candidate->kernel->name,
                     list[i].reason);
    if (count == 0)
        add_variants(ctx, p);
    else if (demand->backend != QUERN_BACKEND_HOST && host_alone(list, count))
        add_host_alone(demand);
    return QUERN_ENOKERNEL;
}

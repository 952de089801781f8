/* SPDX-License-Identifier: Apache-2.0 */
/* select_rules.c: the kernels of a problem, and their requirements. */
#include "choose/select.h"
#include "base/expr.h"
#include "choose/tensormap.h"
#include "device/driver.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/problem.h"

#include <stdio.h>
#include <string.h>

int qn_select_microbatches(const struct qn_problem *p,
                           const struct qn_kernel *kernel)
{
    int wanted = p->microbatches > 1 ? p->microbatches : 1;
    int microbatches = kernel->microbatches > 1 ? kernel->microbatches : 1;

    return microbatches < wanted ? microbatches : wanted;
}

int qn_select_takes_codes(const struct qn_kernel *kernel)
{
    return kernel->dequantize && !strcmp(kernel->dequantize, "none");
}

/* Tensor cores add 16 values of k at a time, whatever instruction asks, and
   tiles of k follow each other: without scales all kernels agree, and with them
   those whose codes become bf16 in a pass, in shared memory or for few tokens.
   Codes in other kernels' registers have another order inside 64 values of k;
   mma.sync multiplies FP8 codes as bf16, wgmma as FP8; Blackwell's products
   scale sums of blocks. The first number is the order of the kernels that are
   fastest where tokens are many. COUPLED: sums */
int qn_select_sums(const struct qn_kernel *kernel)
{
    const char *where = kernel->dequantize ? kernel->dequantize : "";

    if (!strcmp(kernel->arch, "host") || !strcmp(where, "few"))
        return 0;
    if (!strcmp(where, "registers") || !strcmp(where, "swapped"))
        return 1;
    if ((*kernel->schedule && strcmp(kernel->schedule, "overlapped") != 0) ||
        (!qn_tensormap_takes(kernel, QN_PARAM_a_sf) &&
         !qn_tensormap_takes(kernel, QN_PARAM_b_sf)))
        return 0;
    return qn_select_takes_codes(kernel) ? 2 : 3;
}

/* The variant except the type of D and the epilogue. */
int qn_select_product(const struct qn_problem *p,
                      const struct qn_kernel *kernel)
{
    return kernel->op == p->op && kernel->ragged == p->ragged &&
           kernel->a.major == p->a_major && kernel->b.major == p->b_major &&
           !strcmp(kernel->recipe, p->recipe);
}

/* Kernels for the host take null for indices of rows in order. */
static int takes_rows(const struct qn_problem *p,
                      const struct qn_kernel *kernel)
{
    const int gathers = qn_tensormap_takes(kernel, QN_PARAM_gather);
    const int scatters = qn_tensormap_takes(kernel, QN_PARAM_scatter);

    if (!strcmp(kernel->arch, "host"))
        return gathers >= (p->gather > 0) && scatters >= p->scatter;
    return gathers == (p->gather > 0) && scatters == p->scatter;
}

/* The rules that leave out most kernels come first. */
int qn_select_variant(const struct qn_problem *p,
                      const struct qn_kernel *kernel)
{
    return kernel->d.type == p->d_type &&
           qn_problem_takes(p, kernel->epilogue, kernel->activation,
                            kernel->interleave) &&
           qn_select_product(p, kernel) &&
           qn_fuse_serves(p->quantize, kernel->quantize) &&
           takes_rows(p, kernel) &&
           qn_tensormap_takes(kernel, QN_PARAM_extra_k) == (p->lora > 0) &&
           qn_tensormap_takes(kernel, QN_PARAM_bases) ==
               (p->dequantize == QUERN_DEQUANTIZE_F16);
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

int qn_select_pointers(const struct qn_problem *p,
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

/* The CTAs at work share rows of A and columns of B, and L2 holds neither for
   the next wave where k is long: then as many rows as columns is the least to
   read. A few rows less also suit a short k (bench/notes: cycles). Counted in
   clusters. */
int qn_select_band(const struct qn_problem *p, const struct qn_kernel *kernel,
                   int ctas)
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

/* The spec's side. A rule without a value excludes, too. */
int qn_select_requires(const struct qn_problem *p,
                       const struct qn_kernel *kernel, char *reason,
                       size_t size)
{
    const struct qn_expr_values values = {p->m, p->n, p->k, p->groups};

    for (int i = 0; i < kernel->nrules; i++) {
        const struct qn_requires *rule = &kernel->rules[i];
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

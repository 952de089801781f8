/* SPDX-License-Identifier: Apache-2.0 */
/*
** args_check.c: all rules on the arguments of a run.
*/
#include "product/args.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sizes_type.h"
#include "base/types.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "product/backend.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

/* ---------------------------------------------------------------- operands */

/* TMA copies start at multiples of 16 bytes. */
static int check_multiple(const char *name, const char *field, int64_t elements,
                          const struct qn_geometry *g, const char *what)
{
    if ((uint64_t)elements * (uint64_t)qn_type_bits(g->type) % 128 == 0)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s.%s is %lld elements of %s: %s must start at "
                        "multiples of 16 bytes, unless the problem says "
                        "align=2",
                        name, field, (long long)elements, qn_type_name(g->type),
                        what);
}

/* At least a row. */
static int check_stride(const char *name, const struct qn_tensor *tensor,
                        const struct qn_geometry *g, int mapped)
{
    int64_t stride = qn_args_stride(tensor, g);

    if (qn_problem_stride(name, stride, g->columns))
        return QUERN_EINVAL;
    return mapped ? check_multiple(name, "stride", stride, g, "rows")
                  : QUERN_OK;
}

/*
** Matrices one after the other with room between them, or row by row in
** turns. With any gaps, no two share an element.
*/
static int matrices_apart(const struct qn_geometry *g, int64_t stride,
                          int64_t group_stride)
{
    int64_t span;

    if (g->groups == 1 || g->rows == 0)
        return 1;
    if (!__builtin_mul_overflow(g->rows - 1, stride, &span) &&
        !__builtin_add_overflow(span, g->columns, &span) &&
        group_stride >= span)
        return 1;
    return group_stride >= g->columns &&
           !__builtin_mul_overflow(g->groups - 1, group_stride, &span) &&
           !__builtin_add_overflow(span, g->columns, &span) && stride >= span;
}

/* Only where there are groups, and no addresses of their own. */
static int check_group_stride(const char *name, const struct qn_tensor *tensor,
                              const struct qn_geometry *g, int mapped)
{
    int64_t given = tensor->group_stride;

    if (!given)
        return QUERN_OK;
    if (!g->grouped)
        return qn_error_set(QUERN_EINVAL,
                            "%s.group_stride is %lld: %s has no group axis, "
                            "0 is expected",
                            name, (long long)given, name);
    if (tensor->pointers)
        return qn_error_set(QUERN_EINVAL,
                            "%s.group_stride is %lld: %s.pointers has the "
                            "address of each matrix, 0 is expected",
                            name, (long long)given, name);
    if (given < 0 || !matrices_apart(g, qn_args_stride(tensor, g), given))
        return qn_error_set(
            QUERN_EINVAL,
            "%s.group_stride is %lld: matrices of %lld x %lld overlap; 0 "
            "(packed) or a whole matrix is expected",
            name, (long long)given, (long long)g->rows, (long long)g->columns);
    return mapped ? check_multiple(name, "group_stride", given, g, "matrices")
                  : QUERN_OK;
}

/* Addresses of matrices, whose own alignment is the caller's promise. */
static int check_pointers(const struct qn_plan *plan, int role,
                          const struct qn_tensor *tensor)
{
    const char *name = qn_args_names[role];

    if (!plan->operands[role].grouped)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: %s has the ragged axis, "
                            "so all groups are in %s",
                            name, name, name);
    if (qn_problem_pointers(name, tensor))
        return QUERN_EINVAL;
    if (!plan->takes_pointers[role])
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: kernel %s takes %s in "
                            "one buffer; give %s, or make the plan for "
                            "a problem with pointers=%s",
                            name, plan->kernel->name, name, name, name);
    return QUERN_OK;
}

/* Bytes that the rows span; checks that the buffer holds them. */
static int check_data(const char *name, const struct qn_tensor *tensor,
                      const struct qn_geometry *g, int alignment)
{
    int64_t bytes = qn_geometry_bytes(g, tensor->stride, tensor->group_stride);

    if (bytes < 0 || (uint64_t)bytes > tensor->bytes)
        return qn_error_set(QUERN_EINVAL,
                            "%s.bytes is %zu: its rows span %lld bytes", name,
                            tensor->bytes, (long long)bytes);
    if (bytes > 0 && !tensor->data)
        return qn_error_set(QUERN_EINVAL, "%s is NULL%s", name,
                            g->grouped ? ", and its pointers are, too" : "");
    if ((uintptr_t)tensor->data & (uintptr_t)(alignment - 1))
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %d", name,
                            tensor->data, alignment);
    return QUERN_OK;
}

/* Strides and addresses of values as they are. */
static int check_place(const struct qn_plan *plan, int role,
                       const struct qn_tensor *tensor)
{
    const struct qn_geometry *g = &plan->operands[role];
    int mapped = plan->mapped[role];
    const char *name = qn_args_names[role];
    int code = QUERN_OK;

    if (tensor->stride || tensor->group_stride) {
        code = check_stride(name, tensor, g, mapped);
        if (!code)
            code = check_group_stride(name, tensor, g, mapped);
    }
    if (!code)
        code = tensor->pointers
                   ? check_pointers(plan, role, tensor)
                   : check_data(name, tensor, g,
                                qn_problem_alignment(&plan->problem, g->type));
    if (!code && (tensor->sf || tensor->global))
        code = qn_error_set(QUERN_EINVAL,
                            "%s.%s is not NULL: recipe %s has no scale "
                            "factors%s%s",
                            name, tensor->sf ? "sf" : "global",
                            plan->problem.recipe, plan->scaled ? " for " : "",
                            plan->scaled ? name : "");
    return code;
}

/* A copy has the layout of its cast: the caller chooses nothing about it. */
static int check_copy_place(const char *name, const struct qn_tensor *given,
                            const struct qn_tensor *need)
{
    if (given->stride != need->stride)
        return qn_error_set(
            QUERN_EINVAL,
            "%s.stride is %lld: a quantized tensor has %lld, as described",
            name, (long long)given->stride, (long long)need->stride);
    if (given->group_stride)
        return qn_error_set(QUERN_EINVAL,
                            "%s.group_stride is %lld: matrices of a quantized "
                            "tensor are contiguous, 0 is expected",
                            name, (long long)given->group_stride);
    if (given->pointers)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: all matrices of a "
                            "quantized tensor are in %s",
                            name, name);
    return QUERN_OK;
}

/* And its scales, of both levels. */
static int check_copy(const struct qn_plan *plan, int role,
                      const struct qn_tensor *given)
{
    const struct qn_tensor *need = qn_args_tensor(&plan->need.args, role);
    const char *name = qn_args_names[role];
    int code = check_copy_place(name, given, need);

    if (!code)
        code = check_data(name, given, &plan->operands[role],
                          (int)need->alignment);
    return code ? code : qn_quantize_check_sf(name, given, need);
}

/* Type, shape, strides, addresses, scale factors. */
static int check_operand(const struct qn_plan *plan, const struct qn_args *args,
                         int role)
{
    const struct qn_tensor *tensor = qn_args_tensor(args, role);
    const char *name = qn_args_names[role];
    int code =
        qn_problem_shape(name, tensor, qn_args_tensor(&plan->need.args, role));

    if (code)
        return code;
    return plan->operands[role].sf.scaling ? check_copy(plan, role, tensor)
                                           : check_place(plan, role, tensor);
}

/* ------------------------------------------------------------------- sizes */

/* Elements of the sizes must be aligned, on device and host. */
static int check_array(const char *name, const void *array, int type)
{
    size_t bytes = qn_sizes_entry(type);

    if ((uintptr_t)array % bytes)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: %s must start at multiples of %zu", name,
                            array, qn_type_name(type), bytes);
    return QUERN_OK;
}

/* A ragged operand must have sizes. */
static int check_sizes(const struct qn_tensor *tensor,
                       const struct qn_geometry *g)
{
    const char *name = qn_args_names[g->role];
    const void *lengths = qn_args_lengths(tensor, g);
    int code;

    if (!lengths && !tensor->offsets)
        return qn_error_set(QUERN_EINVAL,
                            "lengths, starts and ends are NULL: the groups "
                            "have no sizes");
    if (!qn_sizes_valid(tensor->sizes_type))
        return qn_error_set(QUERN_EINVAL,
                            "%s.sizes_type is %s: i32 or i64 is expected", name,
                            qn_type_name(tensor->sizes_type));
    code = check_array("lengths", lengths, tensor->sizes_type);
    if (!code)
        code = check_array(qn_sizes_operand(tensor->sizes_type),
                           tensor->offsets, tensor->sizes_type);
    return code;
}

/* Lengths belong to the axis that is ragged, and to no other. */
static int check_axis(const struct qn_tensor *t, const struct qn_geometry *g)
{
    const char *given = g->inner_ragged ? "first_dims" : "last_dims";
    const char *name = qn_args_names[g->role];

    if (!(g->inner_ragged ? t->first_dims : t->last_dims))
        return QUERN_OK;
    if (g->inner_ragged)
        return qn_error_set(QUERN_EINVAL,
                            "%s.%s is not NULL: %s is ragged along its last "
                            "axis, give last_dims",
                            name, given, name);
    return qn_error_set(QUERN_EINVAL,
                        "%s.%s is not NULL: %s is not ragged along its last "
                        "axis",
                        name, given, name);
}

/* One operand gives the sizes; another may repeat its arrays or leave them. */
static int check_other_sizes(const struct qn_plan *plan,
                             const struct qn_args *args, int from, int role)
{
    const struct qn_tensor *t = qn_args_tensor(args, role), *source;
    const struct qn_geometry *g = &plan->operands[role];
    const void *lengths = qn_args_lengths(t, g);
    int code = check_axis(t, g);

    if (code || role == from || (!lengths && !t->offsets))
        return code;
    if (g->grouped || g->gathered)
        return qn_error_set(QUERN_EINVAL,
                            "%s.first_dims and %s.offsets must "
                            "be NULL: %s is not ragged",
                            qn_args_names[role], qn_args_names[role],
                            qn_args_names[role]);
    source = qn_args_tensor(args, from);
    if ((lengths &&
         lengths != qn_args_lengths(source, &plan->operands[from])) ||
        (t->offsets && t->offsets != source->offsets))
        return qn_error_set(
            QUERN_EINVAL, "%s.%s and %s.offsets must be NULL or %s's arrays",
            qn_args_names[role], g->inner_ragged ? "last_dims" : "first_dims",
            qn_args_names[role], qn_args_names[from]);
    return QUERN_OK;
}

/* Instead of all arrays. */
static int check_host_sizes(const struct qn_plan *plan,
                            const struct qn_args *args)
{
    const struct qn_problem *p = &plan->problem;

    if (qn_host_size_word(p->sizes))
        return QUERN_EINVAL;
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        const struct qn_tensor *t = qn_args_tensor(args, role);

        if (qn_args_has(plan, args, role) &&
            (t->first_dims || t->last_dims || t->offsets))
            return qn_error_set(QUERN_EINVAL,
                                "%s.%s is not NULL: host_sizes are given",
                                qn_args_names[role],
                                t->first_dims  ? "first_dims"
                                : t->last_dims ? "last_dims"
                                               : "offsets");
    }
    return qn_host_size_check(args->host_sizes, p->groups,
                              qn_axis_name(p->ragged),
                              qn_geometry_length(p, p->ragged));
}

static int check_all_sizes(const struct qn_plan *plan,
                           const struct qn_args *args)
{
    int from = qn_args_sizes(plan, args);
    int code = QUERN_OK;

    if (args->host_sizes)
        return check_host_sizes(plan, args);
    if (from >= 0)
        code = check_sizes(qn_args_tensor(args, from), &plan->operands[from]);
    for (int role = QN_ROLE_A; !code && role < QN_ROLES; role++)
        if (qn_args_has(plan, args, role))
            code = check_other_sizes(plan, args, from, role);
    return code;
}

/* ----------------------------------------------------------------- factors */

/* A factor is given exactly if the problem has one. */
static int check_factor(const char *name, const float *factor, int wanted,
                        const char *otherwise)
{
    if (wanted && !factor)
        return qn_error_set(QUERN_EINVAL, "%s is NULL: the problem says %s=any",
                            name, name);
    if (!wanted && factor)
        return qn_error_set(QUERN_EINVAL,
                            "%s is not NULL: the problem says %s=%s", name,
                            name, otherwise);
    if ((uintptr_t)factor % sizeof *factor)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %zu", name,
                            (const void *)factor, sizeof *factor);
    return QUERN_OK;
}

/* One for all groups, or one for each. */
static int check_scalars(const struct qn_problem *p, int scalars)
{
    if (scalars == 0 || scalars == 1 || scalars == p->groups)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "scalars is %d: 0 or 1 (one for all groups) or %d (one "
                        "for each) is expected",
                        scalars, p->groups);
}

/* An unused C is refused, so that a missing beta is noticed. */
static int check_no_c(const struct qn_problem *p, const struct qn_tensor *c)
{
    if (!c->data && !c->pointers)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "c%s is not NULL: the problem says %s",
                        c->data ? "" : ".pointers",
                        p->beta == QUERN_BETA_ONE ? "beta=1, where C is D"
                                                  : "beta=0");
}

/* An array that is given exactly if the problem has it. */
static int check_given(const char *name, const void *array, size_t alignment,
                       int wanted, const char *word)
{
    if (!wanted && array)
        return qn_error_set(
            QUERN_EINVAL, "%s is not NULL: the problem says %s=0", name, word);
    if (wanted && !array)
        return qn_error_set(QUERN_EINVAL, "%s is NULL: the problem says %s=1",
                            name, word);
    if ((uintptr_t)array % alignment)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %zu", name,
                            array, alignment);
    return QUERN_OK;
}

/* Rows of a bias are read in pairs of columns. Arrays without elements may be
   NULL. */
static int check_epilogue(const struct qn_plan *plan,
                          const struct qn_args *args)
{
    const struct qn_problem *p = &plan->problem;
    int code =
        check_given("bias", args->bias, 2 * sizeof(float), p->bias, "bias");

    if (!code)
        code = check_given("prob", args->probability, sizeof(float),
                           p->probability && (p->m > 0 || args->probability),
                           "prob");
    if (!code)
        code = check_given("dbias", args->dbias, sizeof(float), p->dbias != 0,
                           "dbias");
    if (!code)
        code = check_given("dprob", args->dprob, sizeof(float),
                           p->dprob && (p->m > 0 || args->dprob), "dprob");
    if (!code)
        code = check_given("gather", args->gather, sizeof *args->gather,
                           p->gather && (p->m > 0 || args->gather), "gather");
    if (!code && !qn_geometry_has(p, QN_ROLE_P))
        code = check_given("pre", args->p.data, 1, 0, "saved");
    if (!code && args->t.data && !qn_geometry_has(p, QN_ROLE_T))
        code = qn_error_set(
            QUERN_EINVAL, "d_columnwise is not NULL: the problem does not say "
                          "copies=both");
    return code;
}

/* cuBLASLt's launches look at no flag. */
static int check_noop(const struct qn_plan *plan, const struct qn_args *args)
{
    if (args->noop && plan->products)
        return qn_error_set(
            QUERN_EINVAL,
            "noop is not NULL: the cublaslt backend does not support it");
    if ((uintptr_t)args->noop % sizeof *args->noop)
        return qn_error_set(QUERN_EINVAL,
                            "noop is %p: it must be a multiple of %zu",
                            (const void *)args->noop, sizeof *args->noop);
    return QUERN_OK;
}

static int check_factors(const struct qn_plan *plan, const struct qn_args *args)
{
    const struct qn_problem *p = &plan->problem;
    int any = p->beta == QUERN_BETA_ANY;
    int code = check_factor("alpha", args->alpha, p->alpha, "1");

    if (!code)
        code = check_factor("beta", args->beta, any, qn_beta_name(p->beta));
    if (!code && !any)
        code = check_no_c(p, &args->c);
    if (!code)
        code = check_scalars(p, args->scalars);
    if (!code)
        code = check_epilogue(plan, args);
    return code;
}

/* --------------------------------------------------------------------- all */

/* Its contents are the caller's promise. */
static int check_workspace(const struct qn_plan *plan,
                           const struct qn_args *args)
{
    if (!args->workspace)
        return qn_error_set(QUERN_EINVAL,
                            "workspace is NULL: %zu zeroed bytes "
                            "are needed",
                            plan->need.workspace_bytes);
    if ((uintptr_t)args->workspace % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "workspace is %p: it must be a multiple of %d",
                            args->workspace, QN_ALIGNMENT);
    return QUERN_OK;
}

int qn_args_check(const struct qn_plan *plan, const struct qn_args *args)
{
    int code = check_workspace(plan, args);

    if (!code && plan->products)
        code = plan->ctx->cublaslt->check(plan, args);
    if (!code)
        code = check_factors(plan, args);
    if (!code)
        code = check_noop(plan, args);
    for (int role = QN_ROLE_A; !code && role < QN_ROLES; role++)
        if (qn_args_has(plan, args, role))
            code = check_operand(plan, args, role);
    if (!code && !plan->products)
        code = check_all_sizes(plan, args);
    if (!code)
        code = qn_args_overlap(plan, args);
    if (!code)
        code = qn_fuse_check(plan, args);
    if (!code)
        code = qn_result_check(plan, args);
    return code;
}

int qn_args_admit(const struct qn_plan *plan, const struct qn_args *args,
                  struct qn_plan *room, const struct qn_plan **fitted)
{
    int code;

    if (!plan || !args)
        return qn_error_set(QUERN_EINVAL, "%s is NULL",
                            !plan ? "plan" : "args");
    code = qn_context_process(plan->ctx, "plan");
    if (!code)
        code = qn_plan_fit(plan, args, room, fitted);
    return code ? code : qn_args_check(*fitted, args);
}

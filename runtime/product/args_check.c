/* SPDX-License-Identifier: Apache-2.0 */
/*
** args_check.c: the rules on the arguments of a run that a line's table of
** operands (quern_plan_operands) does not say; it has been obeyed.
*/
#include "product/args.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "product/backend.h"
#include "product/frame.h"

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

static int check_group_stride(const char *name, const struct qn_tensor *tensor,
                              const struct qn_geometry *g, int mapped)
{
    int64_t given = tensor->group_stride;

    if (!given)
        return QUERN_OK;
    if (!matrices_apart(g, qn_args_stride(tensor, g), given))
        return qn_error_set(
            QUERN_EINVAL,
            "%s.group_stride is %lld: matrices of %lld x %lld overlap; 0 "
            "(packed) or a whole matrix is expected",
            name, (long long)given, (long long)g->rows, (long long)g->columns);
    return mapped ? check_multiple(name, "group_stride", given, g, "matrices")
                  : QUERN_OK;
}

static int check_strides(const struct qn_plan *plan, const struct qn_args *args,
                         int role)
{
    const struct qn_tensor *tensor = qn_args_tensor(args, role);
    const struct qn_geometry *g = &plan->operands[role];
    const char *name = qn_args_names[role];
    int mapped = plan->mapped[role], code;

    if (g->sf.scaling || (!tensor->stride && !tensor->group_stride))
        return QUERN_OK;
    code = check_stride(name, tensor, g, mapped);
    return code ? code : check_group_stride(name, tensor, g, mapped);
}

/* ------------------------------------------------------------------ others */

static int check_host_sizes(const struct qn_problem *p,
                            const struct qn_args *args)
{
    if (!args->host_sizes)
        return QUERN_OK;
    if (qn_host_size_word(p->sizes))
        return QUERN_EINVAL;
    return qn_host_size_check(args->host_sizes, p->groups,
                              qn_axis_name(p->ragged),
                              qn_geometry_length(p, p->ragged));
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

int qn_args_check(const struct qn_plan *plan, const struct qn_args *args)
{
    const struct qn_problem *p = &plan->problem;
    int code = check_scalars(p, args->scalars);

    if (!code)
        code = plan->products ? plan->ctx->cublaslt->check(plan, args)
                              : check_host_sizes(p, args);
    for (int role = QN_ROLE_A; !code && role < QN_ROLES; role++)
        if (qn_args_has(plan, args, role))
            code = check_strides(plan, args, role);
    if (!code)
        code = qn_args_overlap(plan, args);
    return code ? code : qn_fuse_check(plan, args);
}

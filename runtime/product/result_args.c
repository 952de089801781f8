/* SPDX-License-Identifier: Apache-2.0 */
/*
** result_args.c: the arguments of the cast that makes copies of a result.
*/
#include "product/result.h"
#include "base/error.h"
#include "problem/ahead_rules.h"
#include "product/args.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

static void *place(const struct quern_args *args, size_t at)
{
    return (char *)args->workspace + at;
}

/* D as numbers, of as many rows; its sizes may be those of the run. */
void qn_result_numbers(const struct quern_plan *plan,
                       const struct quern_args *args, struct quern_tensor *t)
{
    *t = plan->result->product->need.args.d;
    t->shape[0] = plan->problem.m;
    t->data = place(args, plan->result->space.numbers);
    t->first_dims = args->d.first_dims;
    t->offsets = args->d.offsets;
    t->sizes_type = args->d.sizes_type;
}

/* Sizes from the host, where the product has brought them. */
static const void *brought(const struct quern_plan *plan,
                           const struct quern_args *args)
{
    struct quern_problem product = plan->result->product->problem;

    if (!plan->driver)
        return args->host_sizes;
    if (!plan->result->product->ahead)
        return place(args, QN_WORKSPACE_BYTES);
    product.m = plan->problem.m;
    return place(args, qn_ahead_brought(&product));
}

/* Where the groups' sizes are once the product has run, which brings those from
   the host. */
static void find_sizes(const struct quern_plan *plan,
                       const struct quern_args *args,
                       struct quern_quantize_args *out)
{
    const int from = qn_args_sizes(plan, args);
    const struct quern_tensor *t = qn_args_tensor(args, from);

    out->first_dims = qn_args_lengths(t, &plan->operands[from]);
    out->offsets = t->offsets;
    out->sizes_type = t->sizes_type;
    if (!args->host_sizes)
        return;
    out->first_dims = brought(plan, args);
    out->sizes_type = plan->driver ? QUERN_I32 : QUERN_I64;
}

void qn_result_args(const struct quern_plan *plan,
                    const struct quern_quantize_plan *cast,
                    const struct quern_args *args,
                    struct quern_quantize_args *out)
{
    *out = cast->need.args;
    qn_result_numbers(plan, args, &out->in);
    out->row = args->d;
    if (plan->problem.copies & QUERN_COLUMN)
        out->column = args->t;
    out->scale = args->scale;
    out->history = args->history;
    out->random = args->random;
    out->noop = args->noop;
    out->workspace = place(args, plan->result->space.cast);
    find_sizes(plan, args, out);
}

/* What only casts take. */
static int check_none(const struct quern_args *args)
{
    const char *given = args->scale     ? "scale"
                        : args->history ? "history"
                        : args->random  ? "random"
                                        : NULL;

    return given ? qn_error_set(QUERN_EINVAL,
                                "%s is not NULL: only copies of a result have "
                                "one, where the recipe needs it",
                                given)
                 : QUERN_OK;
}

int qn_result_check(const struct quern_plan *plan,
                    const struct quern_args *args)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args cast;
    int code;

    if (!plan->result)
        return check_none(args);
    code = qn_quantize_fit(plan->result->cast, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    qn_result_args(plan, fitted, args, &cast);
    return qn_quantize_args(fitted, &cast);
}

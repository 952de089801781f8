/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuse_run.c: the launches of products that quantize what they multiply.
**
** Kernels whose field `quantize` says "inline" quantize A in shared memory,
** again for each column of tiles, and write no copy of it; before all others a
** cast runs, in a launch of its own.
*/
#include "product/fuse.h"
#include "base/error.h"
#include "problem/fuse_rules.h"
#include "problem/problem.h"
#include "product/args.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

/* Numbers are read 16 bytes at a time. */
enum { NUMBERS = QN_ALIGNMENT / 2 };

/* The plan's own problem, of a run that may have fewer rows: each part of the
   workspace stays where it was. */
static struct quern_problem whole_of(const struct quern_plan *plan)
{
    struct quern_problem whole = plan->problem;

    whole.m = plan->quantizer->q.m;
    return whole;
}

/* Where the caller has the groups' sizes. */
static void find_sizes(const struct quern_plan *plan,
                       const struct quern_args *args, struct qn_values *v)
{
    const int from = qn_args_sizes(plan, args);
    const struct quern_tensor *tensor = qn_args_tensor(args, from);

    v->first_dims = args->host_sizes
                        ? (const void *)args->host_sizes
                        : qn_args_lengths(tensor, &plan->operands[from]);
    v->offsets = args->host_sizes ? NULL : tensor->offsets;
    v->sizes_bytes =
        args->host_sizes || tensor->sizes_type == QUERN_I64 ? 8 : 4;
}

/* The quantization's arguments, with the groups' sizes of `values`; a is room
   that a run may leave alone. */
static void find_args(const struct quern_plan *plan,
                      const struct quern_quantize_plan *quantizer,
                      const struct quern_args *args,
                      const struct qn_values *values,
                      struct quern_quantize_args *out)
{
    const struct quern_problem whole = whole_of(plan);

    *out = quantizer->need.args;
    out->in = args->in;
    out->row = args->a;
    out->column = args->column;
    out->dbias = qn_fuse_sums(&plan->problem) ? args->dbias : NULL;
    out->noop = args->noop;
    out->workspace = (char *)args->workspace + qn_fuse_begin(&whole);
    out->first_dims = values->first_dims;
    out->offsets = values->offsets;
    out->sizes_type = values->sizes_bytes == 8 ? QUERN_I64 : QUERN_I32;
}

/* What kernels of products ask for besides. */
static int check_reads(const struct quern_plan *plan,
                       const struct quern_tensor *in)
{
    if ((uintptr_t)in->data % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "in.data is %p: it must be a multiple of %d",
                            in->data, QN_ALIGNMENT);
    if (qn_fuse_way(plan->kernel) && in->stride % NUMBERS)
        return qn_error_set(QUERN_EINVAL,
                            "in.stride is %lld: %s reads rows at multiples of "
                            "%d bytes, a multiple of %d is expected",
                            (long long)in->stride, plan->kernel->name,
                            QN_ALIGNMENT, NUMBERS);
    return QUERN_OK;
}

/* What only such problems have. */
static int check_none(const struct quern_args *args)
{
    if (!args->in.data && !args->column.data)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s.data is not NULL: the problem does not say "
                        "quantize=, a is there already",
                        args->in.data ? "in" : "column");
}

int qn_fuse_check(const struct quern_plan *plan, const struct quern_args *args)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args made;
    struct qn_values sizes;
    int code;

    if (!plan->problem.quantize)
        return check_none(args);
    if (!plan->quantizer) /* the run of the product, which comes first, does */
        return QUERN_OK;
    find_sizes(plan, args, &sizes);
    code = check_reads(plan, &args->in);
    if (!code)
        code =
            qn_quantize_fit(plan->quantizer, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, &sizes, &made);
    return qn_quantize_args_given(fitted, &made);
}

/* What is quantized, of which no cast makes dbias. */
static int run_sums(const struct quern_plan *plan,
                    const struct quern_args *args,
                    const struct qn_values *values, void *stream)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args sums;
    struct quern_problem whole;
    int code;

    if (!plan->of_in)
        return QUERN_OK;
    whole = whole_of(plan);
    code = qn_quantize_fit(plan->of_in, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, values, &sums);
    sums.row = fitted->need.args.row;
    sums.column = fitted->need.args.column;
    sums.workspace =
        (char *)args->workspace +
        qn_padded(qn_fuse_cast_end(&whole, plan->quantizer->recipe));
    return quern_quantize_run(fitted, &sums, stream);
}

int qn_fuse_run(const struct quern_plan *plan, const struct quern_args *args,
                const struct qn_values *values, void *stream)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args made;
    const int way = plan->quantizer ? qn_fuse_way(plan->kernel) : 0;
    int code;

    if (!plan->quantizer)
        return QUERN_OK;
    if (way == QUERN_INLINE && !args->column.data)
        return run_sums(plan, args, values, stream);
    code = qn_quantize_fit(plan->quantizer, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, values, &made);
    if (way == QUERN_INLINE)
        made.row.data = NULL; /* nobody reads it */
    return quern_quantize_run(fitted, &made, stream);
}

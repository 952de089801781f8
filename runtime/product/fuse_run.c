/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuse_run.c: the launches of products that quantize an operand.
**
** Kernels whose field `quantize` says "mainloop" quantize A in shared memory,
** again for each column of tiles, and write no copy of it; before all others a
** cast runs, in a launch of its own.
*/
#include "base/error.h"
#include "problem/fuse_rules.h"
#include "problem/problem.h"
#include "product/args.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

/* Values are read 16 bytes at a time. */
enum { NUMBERS = QN_ALIGNMENT / 2 };

/* The slices of the workspace, which fewer rows of a run do not move. */
static struct qn_fuse_space space_of(const struct qn_plan *plan)
{
    struct qn_problem whole = plan->problem;
    struct qn_fuse_space space;

    whole.m = qn_launch_find(plan, QN_WORK_QUANTIZE_A)->cast->q.m;
    qn_fuse_lay_out(&whole, plan->recipe, &space);
    return space;
}

/* The arguments of a cast; its sizes are those of the run. `a` is room that a
   run may leave unused. */
static void find_args(const struct qn_plan *plan,
                      const struct qn_quantize_plan *cast,
                      const struct qn_args *args, struct qn_quantize_args *out)
{
    *out = cast->need.args;
    out->in = args->in;
    out->row = args->a;
    out->column = args->column;
    out->dbias = qn_fuse_sums(&plan->problem) ? args->dbias : NULL;
    out->noop = args->noop;
    out->workspace = (char *)args->workspace + space_of(plan).cast;
}

/* Further requirements of product kernels. */
static int check_reads(const struct qn_plan *plan, const struct qn_tensor *in)
{
    if ((uintptr_t)in->data % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "input is %p: it must be a multiple of %d",
                            in->data, QN_ALIGNMENT);
    if (qn_fuse_strategy(plan->kernel) && in->stride % NUMBERS)
        return qn_error_set(
            QUERN_EINVAL,
            "input.stride is %lld: %s reads rows at multiples of "
            "%d bytes, a multiple of %d is expected",
            (long long)in->stride, plan->kernel->name, QN_ALIGNMENT, NUMBERS);
    return QUERN_OK;
}

int qn_fuse_check(const struct qn_plan *plan, const struct qn_args *args)
{
    return qn_launch_find(plan, QN_WORK_QUANTIZE_A)
               ? check_reads(plan, &args->in)
               : QUERN_OK;
}

/* A product in whose mainloop A is quantized needs no cast of it, but for a
   columnwise tensor. */
static int needs_no_cast(const struct qn_frame *f)
{
    return qn_fuse_strategy(f->plan->kernel) == QUERN_QUANTIZE_MAINLOOP &&
           !f->args->column.data;
}

static void set_sizes(const struct qn_frame *f, struct qn_quantize_args *a)
{
    a->first_dims = f->lengths;
    a->offsets = f->offsets;
    a->sizes_type = f->sizes_type;
}

int qn_fuse_sum(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_quantize_plan *fitted;
    struct qn_quantize_plan room;
    struct qn_quantize_args sums;
    int code;

    if (!needs_no_cast(f))
        return QUERN_OK;
    code = qn_quantize_fit(launch->cast, f->plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(f->plan, fitted, f->args, &sums);
    set_sizes(f, &sums);
    sums.row = fitted->need.args.row;
    sums.column = fitted->need.args.column;
    sums.workspace = qn_frame_at(f, space_of(f->plan).sums);
    return qn_quantize_launch(fitted, &sums, f->stream);
}

int qn_fuse_quantize(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_quantize_plan *fitted;
    struct qn_quantize_plan room;
    struct qn_quantize_args made;
    int code;

    if (needs_no_cast(f))
        return QUERN_OK;
    code = qn_quantize_fit(launch->cast, f->plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(f->plan, fitted, f->args, &made);
    set_sizes(f, &made);
    if (qn_fuse_strategy(f->plan->kernel) == QUERN_QUANTIZE_MAINLOOP)
        made.row.data = NULL; /* nothing reads it */
    return qn_quantize_launch(fitted, &made, f->stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* result_run.c: the arguments and the launch of the cast that quantizes a
   product's result. Nothing here allocates. */
#include "product/args.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

static void *place(const struct qn_args *args, size_t at)
{
    return (char *)args->workspace + at;
}

/* D as high-precision values in the workspace, with as many rows as the run
   has. */
static void find_numbers(const struct qn_plan *plan, const struct qn_args *args,
                         struct qn_tensor *t)
{
    const struct qn_launch *last = qn_launch_find(plan, QN_WORK_EPILOGUE);

    if (!last)
        last = qn_launch_find(plan, QN_WORK_PRODUCT);
    *t = last->product->need.args.d;
    t->shape[0] = plan->problem.m;
    t->data = place(args, plan->numbers);
    t->first_dims = args->d.first_dims;
    t->offsets = args->d.offsets;
    t->sizes_type = args->d.sizes_type;
}

/* The arguments of the cast that reads D, but for its sizes. */
static void cast_args(const struct qn_plan *plan,
                      const struct qn_quantize_plan *cast,
                      const struct qn_args *args, struct qn_quantize_args *out)
{
    *out = cast->need.args;
    find_numbers(plan, args, &out->in);
    out->row = args->d;
    if (plan->problem.copies & QUERN_COLUMNWISE)
        out->column = args->t;
    out->scale = args->scale;
    out->history = args->history;
    out->random = args->random;
    out->noop = args->noop;
    out->workspace = place(args, plan->cast);
}

void qn_result_product_args(const struct qn_frame *frame, struct qn_args *args)
{
    find_numbers(frame->plan, frame->args, &args->d);
    args->t = (struct qn_tensor){.data = NULL};
    args->scale = args->history = NULL;
    args->random = NULL;
}

int qn_result_quantize(struct qn_frame *frame, const struct qn_launch *launch)
{
    const struct qn_plan *plan = frame->plan;
    const struct qn_quantize_plan *fitted;
    struct qn_quantize_plan room;
    struct qn_quantize_args cast;
    int code = qn_quantize_fit(launch->cast, plan->problem.m, &room, &fitted);

    if (code)
        return code;
    cast_args(plan, fitted, frame->args, &cast);
    cast.first_dims = frame->lengths;
    cast.offsets = frame->offsets;
    cast.sizes_type = frame->sizes_type;
    return qn_quantize_launch(fitted, &cast, frame->stream);
}

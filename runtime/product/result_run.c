/* SPDX-License-Identifier: Apache-2.0 */
/*
** result_run.c: launch the cast that quantizes a product's result. Nothing here
** allocates.
*/
#include "product/frame.h"
#include "product/plan.h"
#include "product/result.h"
#include "quantize/quantize_plan.h"

void qn_result_product_args(const struct qn_frame *frame,
                            struct quern_args *args)
{
    qn_result_numbers(frame->plan, frame->args, &args->d);
    args->t = (struct quern_tensor){.data = NULL};
    args->scale = args->history = NULL;
    args->random = NULL;
}

int qn_result_quantize(struct qn_frame *frame, const struct qn_launch *launch)
{
    const struct quern_plan *plan = frame->plan;
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args cast;
    int code = qn_quantize_fit(launch->cast, plan->problem.m, &room, &fitted);

    if (code)
        return code;
    qn_result_args(plan, fitted, frame->args, &cast);
    cast.first_dims = frame->lengths;
    cast.offsets = frame->offsets;
    cast.sizes_type = frame->sizes_type;
    return qn_quantize_launch(fitted, &cast, frame->stream);
}

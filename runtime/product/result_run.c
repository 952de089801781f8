/* SPDX-License-Identifier: Apache-2.0 */
/*
** result_run.c: a product, and behind it the cast that makes copies of its
** result. Nothing here allocates.
*/
#include "product/result.h"
#include "product/ahead.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

int qn_result_run(const struct quern_plan *plan, const struct quern_args *args,
                  void *stream)
{
    struct quern_args product = *args;
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args cast;
    int code =
        qn_quantize_fit(plan->result->cast, plan->problem.m, &room, &fitted);

    if (code)
        return code;
    qn_result_numbers(plan, args, &product.d);
    product.t = (struct quern_tensor){.data = NULL};
    product.scale = product.history = NULL;
    product.random = NULL;
    qn_result_args(plan, fitted, args, &cast);
    code = qn_ahead_run_any(plan->result->product, &product, stream);
    return code ? code : quern_quantize_run(fitted, &cast, stream);
}

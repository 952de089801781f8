/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue_run.c: the launch that makes D of a product's sums. Nothing here
   allocates. */
#include "product/args.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

void qn_epilogue_args(const struct qn_frame *f, struct qn_args *args)
{
    const struct qn_problem *p = &f->plan->problem;

    args->d = (struct qn_tensor){.data = qn_frame_at(f, f->plan->sums),
                                 .type = QUERN_F32,
                                 .ndim = 2,
                                 .shape = {p->m, p->n},
                                 .sizes_type = QUERN_I32};
    if (!args->host_sizes) {
        args->d.first_dims = f->lengths;
        args->d.offsets = f->offsets;
        args->d.sizes_type = f->sizes_type;
    }
    args->p = (struct qn_tensor){.data = NULL};
    args->bias = args->probability = NULL;
    args->dbias = args->dprob = NULL;
}

/* Partial sums come before dequantized operands. */
static struct qn_problem placed(const struct qn_problem *problem)
{
    struct qn_problem p = *problem;

    if (p.dequantize > QUERN_DEQUANTIZE_MAINLOOP)
        p.sizes = QUERN_SIZES_DEVICE;
    return p;
}

int qn_epilogue_run(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_plan *plan = f->plan;
    const struct qn_plan *of = launch->product ? launch->product : plan;
    const struct qn_problem p = placed(&plan->problem);
    struct qn_args args = *f->args;
    struct qn_values *v = &f->values;

    if (plan->numbers)
        qn_result_product_args(f, &args);
    qn_value_copy(v, &plan->values);
    v->in = qn_frame_at(f, plan->sums);
    v->in_stride = p.n;
    v->d = args.d.data;
    v->d_stride = qn_args_stride(&args.d, &of->operands[QN_ROLE_D]);
    v->out = args.d.data;
    v->out_stride = v->d_stride;
    v->input = p.d_type;
    v->saved = args.p.data;
    v->saved_stride =
        args.p.data ? qn_args_stride(&args.p, &plan->operands[QN_ROLE_P]) : 0;
    v->bias = args.bias;
    v->probability = args.probability;
    v->limit = args.limit;
    v->slope = args.slope;
    v->shift = args.shift;
    v->noop = args.noop;
    v->error = args.workspace;
    v->first_dims = f->lengths;
    v->offsets = f->offsets;
    v->sizes_bytes = qn_frame_sizes(f);
    v->k = (int)(qn_geometry_halves(&p) && !qn_geometry_backward(&p) ? p.n / 2
                                                                     : p.n);
    qn_gradient_set(&p, &args, v);
    return qn_quantize_step_run(launch->cast, launch->index, v, f->stream);
}

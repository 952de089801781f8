/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_run.c: run the steps of a phase. Nothing here allocates.
*/
#include "mlp/mlp_plan.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/host_sizes.h"
#include "device/check.h"
#include "device/driver.h"
#include "problem/problem.h"
#include "product/plan.h"
#include "product/run.h"
#include "quantize/quantize_plan.h"

/* One run of a plan, for all its steps. */
struct run {
    const struct qn_mlp_plan *plan;
    const struct qn_mlp_args *args;
    void *stream;
    int again; /* pre, in backward */
};

/* ----------------------------------------------------------------- tensors */

/* The tensor in the buffer that has it; no data if there is none. */
static void find_slot(const struct run *run, int slot, struct qn_tensor *t)
{
    const struct qn_mlp_slice *place = &run->plan->space.places[slot];
    void *const buffers[] = {run->args->workspace, run->args->saved,
                             run->args->pending};
    char *base = buffers[place->buffer];
    size_t used = 0;

    *t = place->need;
    if (!t->ndim && slot >= QN_MLP_COLUMN)
        return;
    if (!base) /* of no tokens it has no bytes */
        base = run->args->workspace;
    base += place->at;
    t->data = base + qn_space_add(&used, t->bytes);
    t->sf = t->sf_bytes ? base + qn_space_add(&used, t->sf_bytes) : NULL;
    t->global = t->global_bytes ? base + used : NULL;
}

/* The values of a tensor that is used as it is, or is to be quantized. */
static void find_numbers(const struct run *run, int tensor, struct qn_tensor *t)
{
    const struct qn_mlp_args *args = run->args;

    switch (tensor) {
    case QUERN_MLP_X:
        *t = args->x;
        break;
    case QUERN_MLP_W1:
        *t = args->w1;
        break;
    case QUERN_MLP_W2:
        *t = args->w2;
        break;
    case QUERN_MLP_DY:
        *t = args->dy;
        break;
    default: /* made by a cast, without scales */
        find_slot(run, QN_MLP_ROW + tensor, t);
    }
}

static void find_copy(const struct run *run, int tensor, int copy,
                      struct qn_tensor *t)
{
    const struct qn_mlp_args *args = run->args;
    int row = copy == QUERN_ROWWISE;

    if (tensor == QUERN_MLP_W1)
        *t = row ? args->w1_row : args->w1_column;
    else if (tensor == QUERN_MLP_W2)
        *t = row ? args->w2_row : args->w2_column;
    else
        find_slot(run, (row ? QN_MLP_ROW : QN_MLP_COLUMN) + tensor, t);
}

/* ------------------------------------------------------------------- casts */

/* The source of quantization, and dpre's pre-activation; or the tensor that
   gets a bias. */
static void find_input(const struct run *run, int tensor,
                       struct qn_quantize_args *a)
{
    if (tensor == QUERN_MLP_H) {
        find_slot(run, QN_MLP_PRE_SLOT, &a->in);
    } else if (tensor == QUERN_MLP_DPRE) {
        find_slot(run, QN_MLP_DH_SLOT, &a->in);
        find_slot(run, QN_MLP_PRE_SLOT, &a->saved);
    } else if (tensor == QN_MLP_B2) {
        a->in = run->args->dy;
    } else if (tensor == QN_MLP_ADD_B1) {
        find_slot(run, QN_MLP_PRE_SLOT, &a->out);
    } else if (tensor == QN_MLP_ADD_B2) {
        a->out = run->args->y;
    } else {
        find_numbers(run, tensor, &a->in);
        a->gather = tensor == QUERN_MLP_X    ? run->args->gather_x
                    : tensor == QUERN_MLP_DY ? run->args->gather_dy
                                             : NULL;
        a->topk = run->args->topk;
    }
}

/* The factor of dy for dprob. */
static const float *dprob_bias(const struct run *run)
{
    return run->plan->mlp.probability ? run->args->b2 : NULL;
}

static void find_rest(const struct run *run, int tensor,
                      const struct qn_quantize_plan *plan,
                      struct qn_quantize_args *a)
{
    const struct qn_mlp_args *args = run->args;
    const int slots = run->plan->need.history;

    if (plan->q.of != QN_W) {
        a->first_dims = args->first_dims;
        a->offsets = args->offsets;
    }
    a->sizes_type = args->sizes_type;
    a->probability = plan->q.probability ? args->probability : NULL;
    a->dprob = plan->q.dprob ? args->dprob : NULL;
    a->bias = tensor == QN_MLP_ADD_B1   ? args->b1
              : tensor == QN_MLP_ADD_B2 ? args->b2
              : tensor == QN_MLP_B2     ? dprob_bias(run)
                                        : NULL;
    a->dbias = !plan->q.dbias        ? NULL
               : tensor == QN_MLP_B2 ? args->db2
                                     : args->db1;
    a->limit = args->limit;
    a->slope = args->slope;
    a->shift = args->shift;
    if (plan->need.history) {
        a->scale = args->scale + 2 * (ptrdiff_t)tensor;
        a->history = args->history + (ptrdiff_t)slots * tensor;
    }
    if (plan->need.random)
        a->random = args->random + 2 * (ptrdiff_t)tensor;
    a->workspace = args->workspace;
}

static int run_cast(const struct run *run, int index)
{
    const struct qn_quantize_plan *plan = run->plan->launches[index].cast;
    const int tensor = index == QN_MLP_X_LATER    ? QUERN_MLP_X
                       : index == QN_MLP_DY_LATER ? QUERN_MLP_DY
                                                  : index;
    const int tokens = (index == QUERN_MLP_X && run->plan->gathers) ||
                       (index == QUERN_MLP_DY && run->plan->gathers_dy);
    const struct qn_mlp *mlp = &run->plan->mlp;
    struct qn_quantize_plan room;
    struct qn_quantize_args a;
    int code = QUERN_OK;

    if (plan->q.of != QN_W)
        code = qn_quantize_fit(plan, tokens ? qn_mlp_token_count(mlp) : mlp->m,
                               &room, &plan);
    if (code)
        return code;
    a = plan->need.args;
    find_input(run, tensor, &a);
    if (tensor < QUERN_MLP_TENSORS && plan->q.copies & QUERN_ROWWISE)
        find_copy(run, tensor, QUERN_ROWWISE, &a.row);
    if (plan->q.copies & QUERN_COLUMNWISE)
        find_copy(run, tensor, QUERN_COLUMNWISE, &a.column);
    if (plan->q.of == QN_W && !a.row.data && !a.column.data)
        return QUERN_OK;
    find_rest(run, tensor, plan, &a);
    if (tokens) {
        a.first_dims = run->args->count;
        a.gather = NULL;
    }
    return qn_quantize_launch(plan, &a, run->stream);
}

/* ---------------------------------------------------------------- products */

/* The tensor as the product reads it: quantized, or values. */
static void find_operand(const struct run *run, int product, int role,
                         struct qn_tensor *t)
{
    const struct qn_plan *plan = run->plan->launches[product].product;
    const int tensor = qn_mlp_operand(product, role);
    const struct qn_geometry *g = &plan->operands[role];

    if (g->sf.scaling)
        find_copy(run, tensor, g->sf.copy, t);
    else
        find_numbers(run, tensor, t);
}

/* The destination of the product. */
static void find_result(const struct run *run, int product, struct qn_tensor *t)
{
    const struct qn_mlp_args *args = run->args;

    switch (product) {
    case QN_MLP_PRE:
        find_slot(run,
                  run->plan->fused ? QN_MLP_ROW + QUERN_MLP_H : QN_MLP_PRE_SLOT,
                  t);
        break;
    case QN_MLP_DH:
        find_slot(
            run, run->plan->back ? QN_MLP_ROW + QUERN_MLP_DPRE : QN_MLP_DH_SLOT,
            t);
        break;
    default:
        *t = product == QN_MLP_Y     ? args->y
             : product == QN_MLP_DX  ? args->dx
             : product == QN_MLP_DW1 ? args->dw1
                                     : args->dw2;
    }
}

/* Only A names the sizes; which array they are follows from its layout. */
static void set_sizes(const struct qn_mlp_args *args,
                      const struct qn_geometry *g, struct qn_tensor *a)
{
    a->first_dims = g->inner_ragged ? NULL : args->first_dims;
    a->last_dims = g->inner_ragged ? args->first_dims : NULL;
    a->offsets = args->offsets;
    a->sizes_type = args->sizes_type;
}

/* An activation's inputs besides pre, and the destination of the columnwise
   tensor that the product makes of its result. */
static void set_activation(const struct run *run, int tensor, struct qn_args *a)
{
    if (qn_mlp_scaled(run->plan->recipe, tensor) && !run->again)
        find_slot(run, QN_MLP_COLUMN + tensor, &a->t);
    a->limit = run->args->limit;
    a->slope = run->args->slope;
    a->shift = run->args->shift;
}

/* x of the product of pre, or dy of dh's: tokens through indices, so that D has
   the sizes. */
static void set_tokens(const struct run *run, int product,
                       const struct qn_plan *plan, struct qn_args *a)
{
    if (plan->operands[QN_ROLE_A].sf.scaling)
        find_operand(run, product, QN_ROLE_A, &a->a);
    else
        a->a = run->args->tokens;
    a->gather =
        product == QN_MLP_PRE ? run->args->gather_x : run->args->gather_dy;
    set_sizes(run->args, &plan->operands[QN_ROLE_D], &a->d);
}

/* The step that makes h of pre; pre is kept if backward will read it, as is h's
   columnwise tensor. */
static void set_epilogue(const struct run *run, struct qn_args *a)
{
    const struct qn_mlp *mlp = &run->plan->mlp;

    if (run->again || (!mlp->recompute && !mlp->forward_only))
        find_slot(run, QN_MLP_PRE_SLOT, &a->p);
    set_activation(run, QUERN_MLP_H, a);
}

/* The step that makes dpre of dh and pre, and sums of both. */
static void set_back(const struct run *run, struct qn_args *a)
{
    const struct qn_mlp_args *args = run->args;
    const struct qn_problem *p =
        &run->plan->launches[QN_MLP_DH].product->problem;

    find_slot(run, QN_MLP_PRE_SLOT, &a->p);
    set_activation(run, QUERN_MLP_DPRE, a);
    a->dbias = p->dbias ? args->db1 : NULL;
    a->dprob = p->dprob ? args->dprob : NULL;
}

/* The arguments of its run. 0: it is not wanted, or of no tokens. */
static int set_product(const struct run *run, int product, struct qn_args *a)
{
    const struct qn_plan *plan = run->plan->launches[product].product;

    *a = plan->need.args;
    find_result(run, product, &a->d);
    if (!a->d.data && !a->d.pointers)
        return 0;
    find_operand(run, product, QN_ROLE_B, &a->b);
    if (plan->problem.gather) {
        set_tokens(run, product, plan, a);
    } else {
        find_operand(run, product, QN_ROLE_A, &a->a);
        set_sizes(run->args, &plan->operands[QN_ROLE_A], &a->a);
    }
    if (product == QN_MLP_PRE && run->plan->fused)
        set_epilogue(run, a);
    if (product == QN_MLP_DH && run->plan->back)
        set_back(run, a);
    if (plan->problem.scatter) {
        a->scatter = run->args->scatter;
        a->addresses = product == QN_MLP_Y ? run->args->y_addresses
                                           : run->args->dx_addresses;
    }
    if (plan->problem.bias)
        a->bias = product == QN_MLP_PRE ? run->args->b1 : run->args->b2;
    if (plan->problem.probability)
        a->probability = run->args->probability;
    a->workspace = run->args->workspace;
    return 1;
}

static int run_product(const struct run *run, int product)
{
    const struct qn_plan *plan = run->plan->launches[product].product;
    const int64_t tokens =
        plan->problem.gather ? qn_mlp_token_count(&run->plan->mlp) : 0;
    struct qn_plan room;
    struct qn_args a;
    int code;

    if (!set_product(run, product, &a))
        return QUERN_OK;
    code = qn_plan_fit_total(plan, run->plan->mlp.m, tokens, &room, &plan);
    return code ? code : qn_run_checked(plan, &a, run->stream);
}

/* ------------------------------------------------------------------- sizes */

/* From the host, once for all steps: `args` has them on the device then. The
   kernel is that of the plan of pre. */
static int bring_sizes(const struct qn_mlp_plan *plan, struct qn_mlp_args *args,
                       void *stream)
{
    const struct qn_plan *pre = plan->launches[QN_MLP_PRE].product;
    const int64_t *sizes = args->host_sizes;
    void *place = (char *)args->workspace + plan->space.sizes;

    args->host_sizes = NULL;
    args->first_dims = pre->driver ? place : sizes;
    args->sizes_type = pre->driver ? QUERN_I32 : QUERN_I64;
    if (!pre->driver)
        return QUERN_OK;
    return qn_host_size_put(
        pre->driver, &qn_launch_find(pre, QN_WORK_SIZES)->step, plan->mlp.sizes,
        &sizes, 1, plan->mlp.groups, place, stream);
}

/* ------------------------------------------------------------------ phases */

static int run_steps(struct run *run, int phase)
{
    int code = QUERN_OK;

    for (int i = 0; i < QN_MLP_STEPS && !code; i++) {
        const struct qn_mlp_step *step = &qn_mlp_steps[i];
        const struct qn_launch *launch = &run->plan->launches[step->index];

        run->again = qn_mlp_again(step);
        if (step->phase != phase || (run->again && !run->plan->mlp.recompute))
            continue;
        if (launch->cast)
            code = run_cast(run, step->index);
        else if (launch->product)
            code = run_product(run, step->index);
        if (code)
            qn_error_add("  in the step %s", step->name);
    }
    return code;
}

int qn_mlp_launch(const struct qn_mlp_plan *plan,
                  const struct qn_mlp_args *args, int first, int last,
                  void *stream)
{
    struct run run = {plan, args, stream, 0};
    struct qn_mlp_args brought;
    int code = QUERN_OK;

    if (first != QUERN_PHASE_WEIGHTS && args->host_sizes) {
        brought = *args;
        run.args = &brought;
        code = bring_sizes(plan, &brought, stream);
    }
    for (int phase = first; phase <= last && !code; phase++)
        code = run_steps(&run, phase);
    return code;
}

int qn_mlp_run(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
               int phase, void *stream)
{
    const int last = phase == QUERN_PHASE_BACKWARD && qn_mlp_makes_dw(args)
                         ? QUERN_PHASE_WGRAD
                         : phase;
    const struct qn_plan *pre = plan->launches[QN_MLP_PRE].product;
    struct qn_driver_scope scope;
    struct qn_mlp_plan room;
    int code = qn_context_process(pre->ctx, "plan");

    if (!code)
        code = qn_mlp_plan_fit(plan, args, &room, &plan);
    if (!code)
        code = qn_mlp_args(plan, args, phase, last);
    if (code || !pre->driver)
        return code ? code : qn_mlp_launch(plan, args, phase, last, stream);
    code = qn_driver_enter(pre->driver, pre->context, &scope);
    if (!code)
        code = qn_mlp_launch(plan, args, phase, last, stream);
    qn_driver_leave(pre->driver, &scope);
    return code;
}

int qn_mlp_product_args(const struct qn_mlp_plan *plan,
                        const struct qn_mlp_args *args, int product,
                        struct qn_args *out)
{
    const struct run run = {plan, args, NULL, 0};

    return set_product(&run, product, out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* moe_run.c: run a phase of a layer. Nothing here allocates. */
#include "base/context.h"
#include "base/error.h"
#include "base/region.h"
#include "base/types.h"
#include "device/check.h"
#include "device/driver.h"
#include "layer/moe_plan.h"
#include "mlp/mlp_plan.h"
#include "problem/problem.h"
#include "product/plan.h"
#include "route/route_plan.h"

/* One run of a plan. */
struct run {
    const struct qn_moe_plan *plan;
    const struct qn_mlp_args *args;
    struct qn_moe moe; /* of the run's tokens */
    struct qn_moe_space space;
    int phase, wgrad;        /* wgrad: backward makes dw1 or dw2, too */
    struct qn_mlp_args rows; /* of the MLP */
    const struct qn_mlp_plan *mlp;
    struct qn_mlp_plan room; /* of it */
    void *stream;
};

/* ------------------------------------------------------------------ memory */

static const struct qn_plan *product_of(const struct qn_moe_plan *plan)
{
    return plan->mlp->launches[QN_MLP_Y].product;
}

/* NULL: there is none, or no token. */
static void *slot(const struct run *run, int which)
{
    const struct qn_moe_slice *s = &run->space.slots[which];
    void *const buffers[] = {run->args->workspace, run->args->saved,
                             run->args->pending};
    char *base = buffers[s->buffer];

    if (!s->bytes && (which == QN_MOE_Y || which == QN_MOE_DY))
        return slot(run, QN_MOE_MOVED);
    return s->bytes && base ? base + s->at : NULL;
}

/* The casts' indices of tokens; NULL: they read rows of it. */
static const int *gather_of(const struct run *run, int tensor)
{
    return qn_moe_gathers(&run->moe, run->plan->recipe, tensor)
               ? slot(run, QN_MOE_GATHER)
               : NULL;
}

/* Rows of experts. */
static struct qn_tensor rows_at(const struct run *run, int which)
{
    struct qn_tensor t = run->mlp->need.args.x;

    t.data = slot(run, which);
    return t;
}

/* x where the product of pre can read it: copied there (copy_tokens) if it is
   not aligned. */
static struct qn_tensor tokens_of(const struct run *run)
{
    struct qn_tensor t = run->args->x;
    const int64_t stride = t.stride ? t.stride : t.shape[1];
    const size_t bytes = (size_t)stride * (size_t)qn_type_bits(t.type) / 8;

    if (!product_of(run->plan)->driver ||
        (bytes | (uintptr_t)t.data) % QN_ALIGNMENT == 0)
        return t;
    t.data = slot(run, QN_MOE_MOVED);
    t.stride = t.shape[1];
    return t;
}

static int is_weighted(const struct run *run, int weights)
{
    return run->moe.mlp.probability == weights;
}

/* dprob of tokens is made of rows of dx, too. */
static int makes_dx(const struct run *run)
{
    return run->args->dx.data || run->args->dx_addresses ||
           is_weighted(run, QUERN_WEIGHTS_X);
}

static void *after(void *buffer, size_t bytes)
{
    return buffer ? (char *)buffer + bytes : NULL;
}

/* The arguments of the MLP: rows in place of tokens. */
static void set_rows(struct run *run)
{
    const struct qn_mlp_args *args = run->args;
    struct qn_mlp_args *a = &run->rows;
    const int forward = run->phase == QUERN_PHASE_FORWARD;

    a->gather_x = run->mlp->gathers ? slot(run, QN_MOE_GATHER)
                                    : gather_of(run, QUERN_MLP_X);
    a->gather_dy = gather_of(run, QUERN_MLP_DY);
    a->topk = run->moe.topk;
    a->scatter = slot(run, QN_MOE_GATHER);
    if (!a->gather_x || (!forward && !gather_of(run, QUERN_MLP_X)))
        a->x = rows_at(run, forward ? QN_MOE_MOVED : QN_MOE_X);
    if (run->mlp->gathers)
        a->tokens = tokens_of(run);
    a->count = slot(run, QN_MOE_COUNT);
    if (!a->gather_dy)
        a->dy = rows_at(run, QN_MOE_DY);
    a->y = rows_at(run, QN_MOE_Y);
    a->dx = rows_at(run, QN_MOE_MOVED);
    if (!makes_dx(run))
        a->dx.data = NULL;
    a->first_dims = slot(run, QN_MOE_LENGTHS);
    a->offsets = NULL;
    a->host_sizes = NULL;
    a->sizes_type = QUERN_I32;
    a->probability = slot(run, QN_MOE_PROB);
    a->dprob = slot(run, QN_MOE_DPROB);
    if (!run->moe.mlp.forward_only) {
        a->saved = after(args->saved, run->space.saved);
        a->pending = after(args->pending, run->space.pending);
    }
}

static int begin(struct run *run, const struct qn_moe_plan *plan,
                 const struct qn_mlp_args *args, int phase)
{
    int code = qn_context_process(plan->ctx, "plan");

    if (!code && (args->rows < 0 || args->rows > plan->moe.mlp.m))
        code = qn_error_set(QUERN_EINVAL,
                            "rows is %lld: 0 to %lld tokens are expected",
                            (long long)args->rows, (long long)plan->moe.mlp.m);
    if (code)
        return code;
    run->plan = plan;
    run->args = args;
    run->phase = phase;
    run->wgrad = phase == QUERN_PHASE_BACKWARD && qn_mlp_makes_dw(args);
    run->moe = plan->moe;
    run->moe.mlp.m = args->rows;
    qn_moe_space_fill(&run->moe, plan->recipe, plan->scratch, &run->space);
    run->rows = *args;
    run->rows.rows = args->rows * run->moe.topk;
    code = qn_mlp_plan_fit(plan->mlp, &run->rows, &run->room, &run->mlp);
    if (!code)
        set_rows(run);
    return code;
}

/* ------------------------------------------------------------------- rules */

struct list {
    struct qn_region at[QN_MLP_LAYER_REGIONS];
    int count;
};

static void add(struct list *l, const char *name, const void *data,
                size_t bytes, int written)
{
    l->at[l->count++] = (struct qn_region){name, data, bytes, written, 0};
}

static void add_tensor(struct list *l, const char *name,
                       const struct qn_tensor *t, int written)
{
    add(l, name, t->data, t->bytes, written);
}

/* Tokens and all that is theirs; y may be the residual itself. */
static void list_tokens(const struct run *run, struct list *l)
{
    const struct qn_mlp_args *args = run->args;
    const size_t pairs = (size_t)(args->rows * run->moe.topk);
    const size_t addresses = (size_t)args->rows * sizeof *args->y_addresses;

    add_tensor(l, "x", &args->x, 0);
    add(l, "prob", args->probability, pairs * sizeof(float), 0);
    if (run->phase == QUERN_PHASE_FORWARD) {
        add(l, "index", args->index,
            pairs * (run->moe.index == QUERN_I64 ? 8 : 4), 0);
        add_tensor(l, "c", &args->residual, 0);
        l->at[l->count - 1].alike = 1;
        add_tensor(l, "y", &args->y, 1);
        l->at[l->count - 1].alike = 1;
        add(l, "y_addresses", args->y_addresses, addresses, 0);
    } else {
        add_tensor(l, "dy", &args->dy, 0);
        add_tensor(l, "dx", &args->dx, 1);
        add(l, "dx_addresses", args->dx_addresses, addresses, 0);
        add(l, "dprob", args->dprob, pairs * sizeof(float), 1);
    }
}

/* Arrays of the MLP were compared with its own memory, which is in that of the
   layer. */
static int check_overlap(const struct run *run, int last)
{
    const struct qn_mlp_args *args = run->args;
    const struct qn_mlp_description *need = &run->plan->need;
    struct list l;

    l.count = 0;
    if (run->phase != QUERN_PHASE_WGRAD)
        list_tokens(run, &l);
    add(&l, "workspace", args->workspace, need->workspace_bytes, 1);
    add(&l, "errors", args->errors, QN_WORKSPACE_BYTES, 1);
    if (!run->moe.mlp.forward_only)
        add(&l, "saved", args->saved,
            run->space.saved + run->mlp->need.saved_bytes, 1);
    if (run->phase != QUERN_PHASE_FORWARD)
        add(&l, "pending", args->pending,
            run->space.pending + run->mlp->need.pending_bytes, 1);
    return qn_mlp_args_layer(run->mlp, &run->rows, run->phase, last, l.at,
                             l.count);
}

static int check(const struct run *run)
{
    const int phase = run->phase, last = run->wgrad ? QUERN_PHASE_WGRAD : phase;
    const int code = qn_mlp_args(run->mlp, &run->rows, phase, last);

    return code || phase == QUERN_PHASE_WEIGHTS ? code
                                                : check_overlap(run, last);
}

/* ------------------------------------------------------------------- moves */

/* A move of tokens or rows, whose tensors `args` has. */
static void set_move(const struct run *run, int weights, struct qn_route *route,
                     struct qn_route_args *args)
{
    route->type = run->moe.mlp.type;
    route->k = args->in.data ? run->moe.mlp.hidden : 0;
    args->inverse = slot(run, QN_MOE_INVERSE);
    args->probability =
        is_weighted(run, weights) ? run->args->probability : NULL;
    args->tokens = run->moe.mlp.m;
}

/* Tokens to rows, or rows to tokens. */
static int move(const struct run *run, int work, int weights,
                struct qn_route_args *args)
{
    const struct qn_route_plan *plan =
        work == QUERN_PERMUTE ? run->plan->permute : run->plan->combine;
    struct qn_route route;

    if (!run->moe.mlp.m)
        return QUERN_OK;
    qn_moe_route(&run->moe, work, &route);
    set_move(run, weights, &route, args);
    return qn_route_launch(plan, &route, args, run->stream);
}

/* Values of pairs that a move takes along: with prob=h. */
static void move_numbers(const struct run *run, float *pairs, int rows,
                         struct qn_route_args *args)
{
    if (!is_weighted(run, QUERN_WEIGHTS_H))
        return;
    args->pairs = pairs;
    args->numbers = slot(run, rows);
}

/* Only probabilities, with prob=h. */
static int move_probabilities(const struct run *run)
{
    struct qn_route_args args = {.in = {.data = NULL}};

    move_numbers(run, (float *)run->args->probability, QN_MOE_PROB, &args);
    return args.numbers ? move(run, QUERN_PERMUTE, QUERN_WEIGHTS_NONE, &args)
                        : QUERN_OK;
}

/* Tokens to where a kernel can copy 16 bytes from. */
static int copy_tokens(const struct run *run)
{
    const struct qn_tensor *x = &run->args->x, *to = &run->rows.tokens;
    const struct qn_plan *product = product_of(run->plan);
    const size_t element = (size_t)qn_type_bits(x->type) / 8;
    const size_t width = (size_t)x->shape[1] * element;
    const struct cu_copy rows = {
        .from = {.memory = QN_CU_MEMORY_DEVICE,
                 .device = (uintptr_t)x->data,
                 .pitch = x->stride ? (size_t)x->stride * element : width},
        .to = {.memory = QN_CU_MEMORY_DEVICE,
               .device = (uintptr_t)to->data,
               .pitch = width},
        .width = width,
        .height = (size_t)run->moe.mlp.m};

    if (to->data == x->data || !run->moe.mlp.m)
        return QUERN_OK;
    return QN_CU(product->driver, cuMemcpy2DAsync_v2, &rows, run->stream);
}

/* The move of x, forward and backward: rows, and with prob=h probabilities. */
static struct qn_route_args moves_of_x(const struct run *run)
{
    const int forward = run->phase == QUERN_PHASE_FORWARD;
    struct qn_route_args args = {.in = {.data = NULL}};

    if (!gather_of(run, QUERN_MLP_X) && !(forward && run->mlp->gathers)) {
        args.in = run->args->x;
        args.out = rows_at(run, forward ? QN_MOE_MOVED : QN_MOE_X);
    }
    if (forward)
        move_numbers(run, (float *)run->args->probability, QN_MOE_PROB, &args);
    return args;
}

static int move_x(const struct run *run)
{
    struct qn_route_args args = moves_of_x(run);

    return args.out.data || args.numbers
               ? move(run, QUERN_PERMUTE, QUERN_WEIGHTS_X, &args)
               : QUERN_OK;
}

/* And tokens to rows, if its launch can. */
static int find_maps(const struct run *run)
{
    const struct qn_route_plan *plan = run->plan->maps;
    struct qn_route_args args = {.in = {.data = NULL}};
    struct qn_route route;

    if (plan->moves)
        args = moves_of_x(run);
    qn_moe_route(&run->moe, QUERN_ROUTE, &route);
    set_move(run, QUERN_WEIGHTS_X, &route, &args);
    args.index = run->args->index;
    args.lengths = slot(run, QN_MOE_LENGTHS);
    args.gather = slot(run, QN_MOE_GATHER);
    args.count = slot(run, QN_MOE_COUNT);
    args.workspace = run->args->workspace;
    args.errors = run->args->errors;
    return qn_route_launch(plan, &route, &args, run->stream);
}

static int run_mlp(const struct run *run)
{
    return qn_mlp_launch(run->mlp, &run->rows, run->phase,
                         run->wgrad ? QUERN_PHASE_WGRAD : run->phase,
                         run->stream);
}

/* ------------------------------------------------------------------ phases */

static int forward(const struct run *run)
{
    struct qn_route_args sums = {.in = rows_at(run, QN_MOE_Y),
                                 .out = run->args->y,
                                 .addresses = run->args->y_addresses,
                                 .residual = run->args->residual};
    int code = find_maps(run);

    if (!code && qn_moe_copies(run->plan, run->phase))
        code = copy_tokens(run);
    if (!code && !run->plan->maps->moves)
        code = move_x(run);
    if (!code)
        code = run_mlp(run);
    return code || run->mlp->scatters_y
               ? code
               : move(run, QUERN_COMBINE, QUERN_WEIGHTS_Y, &sums);
}

/* Rows of dy; with probabilities of results also their gradients. */
static int move_dy(const struct run *run)
{
    struct qn_route_args args = {.in = run->args->dy,
                                 .out = rows_at(run, QN_MOE_DY)};

    if (run->rows.gather_dy)
        return move_probabilities(run);
    move_numbers(run, (float *)run->args->probability, QN_MOE_PROB, &args);
    if (is_weighted(run, QUERN_WEIGHTS_Y)) {
        args.rows = rows_at(run, QN_MOE_Y);
        args.dprob = run->args->dprob;
    }
    return move(run, QUERN_PERMUTE, QUERN_WEIGHTS_Y, &args);
}

static int move_dx(const struct run *run)
{
    struct qn_route_args sums = {.in = rows_at(run, QN_MOE_MOVED),
                                 .out = run->args->dx,
                                 .addresses = run->args->dx_addresses};

    if (run->mlp->scatters_dx)
        sums = (struct qn_route_args){.in = {.data = NULL}};
    move_numbers(run, run->args->dprob, QN_MOE_DPROB, &sums);
    return sums.out.data || sums.addresses || sums.numbers
               ? move(run, QUERN_COMBINE, QUERN_WEIGHTS_X, &sums)
               : QUERN_OK;
}

/* The gradient of tokens' probabilities. */
static int find_dprob(const struct run *run)
{
    struct qn_route_args args = {.in = run->args->x,
                                 .rows = rows_at(run, QN_MOE_MOVED),
                                 .dprob = run->args->dprob};

    return is_weighted(run, QUERN_WEIGHTS_X)
               ? move(run, QUERN_PERMUTE, QUERN_WEIGHTS_X, &args)
               : QUERN_OK;
}

static int backward(const struct run *run)
{
    int code = move_dy(run);

    if (!code)
        code = move_x(run);
    if (!code && qn_moe_copies(run->plan, run->phase))
        code = copy_tokens(run);
    if (!code)
        code = run_mlp(run);
    if (!code)
        code = move_dx(run);
    return code ? code : find_dprob(run);
}

/* In the plan's context. */
static int launch(const struct run *run)
{
    return run->phase == QUERN_PHASE_FORWARD    ? forward(run)
           : run->phase == QUERN_PHASE_BACKWARD ? backward(run)
                                                : run_mlp(run);
}

int qn_moe_run(const struct qn_moe_plan *plan, const struct qn_mlp_args *args,
               int phase, void *stream)
{
    struct qn_driver_scope scope;
    struct run run = {.stream = stream};
    int code = begin(&run, plan, args, phase);

    if (!code)
        code = check(&run);
    if (code || !product_of(plan)->driver)
        return code ? code : launch(&run);
    code = qn_driver_enter(product_of(plan)->driver, product_of(plan)->context,
                           &scope);
    if (!code)
        code = launch(&run);
    qn_driver_leave(product_of(plan)->driver, &scope);
    return code;
}

int qn_moe_put(const struct qn_moe_plan *plan, const struct qn_mlp_args *args,
               struct quern_queue *queue, int layer)
{
    struct run run = {.stream = NULL};
    const int code = begin(&run, plan, args, QUERN_PHASE_WGRAD);

    return code ? code : qn_mlp_put(plan->mlp, &run.rows, queue, layer);
}

int qn_moe_run_check(const struct qn_moe_plan *plan, void *workspace,
                     void *stream)
{
    struct qn_route route;

    qn_moe_route(&plan->moe, QUERN_ROUTE, &route);
    return qn_check_route(product_of(plan)->driver, product_of(plan)->context,
                          workspace, route.topk, qn_route_experts(&route),
                          stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** ahead_run.c: expand, then multiply; or encode as FP8, or look whether f16
** will do, and multiply, and then the same only if that did not fit. Nothing
** here allocates.
*/
#include "product/ahead.h"
#include "choose/host_sizes.h"
#include "device/driver.h"
#include "problem/ahead_rules.h"
#include "problem/reencode_rules.h"
#include "product/args.h"
#include "product/plan.h"
#include "product/reencode.h"
#include "product/run.h"
#include "quantize/quantize_plan.h"

/* One run of a plan. */
struct run {
    const struct quern_plan *plan;
    const struct quern_args *args;
    struct qn_ahead_space space;
    const struct qn_recipe *recipe;
    /* as all launches read them */
    const void *lengths, *offsets;
    int sizes_type;
    const int *noop; /* of what makes bf16 */
    void *stream;
};

static void *place(const struct run *run, size_t at)
{
    return (char *)run->args->workspace + at;
}

/* ------------------------------------------------------------------- sizes */

/* The caller's arrays, from whichever operand has them. */
static void find_sizes(struct run *run)
{
    const int from = qn_args_sizes(run->plan, run->args);
    const struct quern_tensor *t = qn_args_tensor(run->args, from);

    run->lengths = qn_args_lengths(t, &run->plan->operands[from]);
    run->offsets = t->offsets;
    run->sizes_type = t->sizes_type;
}

/* From the host, once for all launches. */
static int bring_sizes(struct run *run)
{
    const struct quern_plan *plan = run->plan;
    struct qn_driver_scope scope;
    void *to;
    int code;

    run->lengths = run->args->host_sizes;
    run->sizes_type = QUERN_I64;
    if (!plan->driver)
        return QUERN_OK;
    run->lengths = to = place(run, qn_ahead_brought(&plan->problem));
    run->sizes_type = QUERN_I32;
    code = qn_driver_enter(plan->driver, plan->context, &scope);
    if (!code)
        code = qn_host_size_put(plan->driver, &plan->size_step,
                                plan->problem.sizes, &run->args->host_sizes, 1,
                                plan->problem.groups, to, run->stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

/* ------------------------------------------------------------------- steps */

static int expand(const struct run *run, int role)
{
    const struct quern_quantize_plan *cast = run->plan->ahead->casts[role];
    struct quern_quantization q;
    struct qn_expansion e = {.copy = qn_args_tensor(run->args, role),
                             .out = place(run, run->space.operand[role]),
                             .noop = run->noop,
                             .error = run->args->workspace};

    if (!cast)
        return QUERN_OK;
    qn_ahead_cast(&run->plan->problem, run->recipe, role, &q);
    e.q = &q;
    if (q.of != QUERN_W) {
        e.first_dims = run->lengths;
        e.offsets = run->offsets;
        e.sizes_bytes = run->sizes_type == QUERN_I64 ? 8 : 4;
        e.align = qn_ahead_align(&run->plan->problem, run->recipe);
    }
    return qn_quantize_expand(cast, &e, run->stream);
}

/* What the step before the product makes, where it does. */
struct made {
    float *factors;
    int *sizes;
    unsigned int *flags;
};

/* COUPLED: ahead */
static void make_factors(const struct quern_args *args, int groups, float *to)
{
    const float *a = args->a.global, *b = args->b.global;
    const int step = args->scalars > 1;

    for (int i = 0; i < groups; i++) {
        to[i] = (a ? a[i] : 1) * (b ? b[i] : 1) *
                (args->alpha ? args->alpha[i * step] : 1);
        to[groups + i] = args->beta ? args->beta[i * step] : 1;
    }
}

static int64_t size_at(const struct run *run, const void *sizes, int i)
{
    return run->sizes_type == QUERN_I64 ? ((const int64_t *)sizes)[i]
                                        : ((const int32_t *)sizes)[i];
}

static int64_t cut(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* Sizes may lie: each is cut to the tokens, then to the copies' columns. */
static void make_sizes(const struct run *run, int align, int *to)
{
    const int groups = run->plan->problem.groups;
    const int64_t rows = run->plan->problem.k;
    const int64_t most = qn_ahead_total(&run->plan->problem, run->recipe);
    int64_t start = 0, first = 0;

    for (int i = 0; i < groups; i++) {
        const void *lengths = run->lengths ? run->lengths : run->offsets;
        int64_t length = size_at(run, lengths, i + !run->lengths), room;

        if (!run->lengths &&
            __builtin_sub_overflow(length, size_at(run, lengths, i), &length))
            length = 0;
        if (run->offsets)
            start = cut(size_at(run, run->offsets, i), rows);
        length = cut(length, rows - start);
        start += length;
        room = most - first;
        to[i] = (int)cut(qn_quantize_round_up(length, align), room);
        to[groups + i] = (int)first;
        first += cut(qn_quantize_round_up(length, 128), room);
    }
    to[2 * groups] = (int)first;
}

/* The plan's step, with these values. */
static int launch(const struct run *run, void *const values[QN_PARAM_COUNT])
{
    const struct quern_plan *plan = run->plan;
    struct qn_driver_scope scope;
    int code = qn_driver_enter(plan->driver, plan->context, &scope);

    if (!code)
        code = qn_step_launch(plan->driver, &plan->ahead->step, values,
                              run->stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

static int launch_step(const struct run *run, struct made *made, int align)
{
    const struct quern_plan *plan = run->plan;
    const struct quern_args *args = run->args;
    int step = args->scalars > 1, groups = plan->problem.groups;
    int bytes = run->sizes_type == QUERN_I64 ? 8 : 4;
    int rows = (int)qn_geometry_length(&plan->problem, plan->problem.ragged);
    const void *a = args->a.global, *b = args->b.global;
    const void *lengths = run->lengths, *offsets = run->offsets;
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_a_global] = (void *)&a,
        [QN_PARAM_b_global] = (void *)&b,
        [QN_PARAM_alpha] = (void *)&args->alpha,
        [QN_PARAM_beta] = (void *)&args->beta,
        [QN_PARAM_scalar_step] = &step,
        [QN_PARAM_factors] = &made->factors,
        [QN_PARAM_first_dims] = (void *)&lengths,
        [QN_PARAM_offsets] = (void *)&offsets,
        [QN_PARAM_sizes_bytes] = &bytes,
        [QN_PARAM_groups] = &groups,
        [QN_PARAM_m] = &rows,
        [QN_PARAM_align] = &align,
        [QN_PARAM_device_sizes] = &made->sizes,
        [QN_PARAM_flags] = &made->flags,
        [QN_PARAM_noop] = (void *)&args->noop};

    return launch(run, values);
}

/* Whether all values fit f16. */
static int look(const struct run *run, const struct made *made)
{
    const struct quern_plan *plan = run->plan;
    const struct quern_args *args = run->args;
    const struct qn_geometry *g = plan->operands;
    long long a_stride = qn_args_stride(&args->a, &g[QN_ROLE_A]);
    long long b_stride = qn_args_stride(&args->b, &g[QN_ROLE_B]);
    int bytes = run->sizes_type == QUERN_I64 ? 8 : 4;
    int m = (int)plan->problem.m, n = (int)plan->problem.n;
    int k = (int)plan->problem.k, groups = plan->problem.groups;
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_a] = (void *)&args->a.data,
        [QN_PARAM_a_stride] = &a_stride,
        [QN_PARAM_a_sf] = (void *)&args->a.sf,
        [QN_PARAM_b] = (void *)&args->b.data,
        [QN_PARAM_b_stride] = &b_stride,
        [QN_PARAM_b_sf] = (void *)&args->b.sf,
        [QN_PARAM_first_dims] = (void *)&run->lengths,
        [QN_PARAM_offsets] = (void *)&run->offsets,
        [QN_PARAM_sizes_bytes] = &bytes,
        [QN_PARAM_groups] = &groups,
        [QN_PARAM_m] = &m,
        [QN_PARAM_n] = &n,
        [QN_PARAM_k] = &k,
        [QN_PARAM_flags] = (void *)&made->flags,
        [QN_PARAM_noop] = (void *)&args->noop,
        [QN_PARAM_error] = (void *)&args->workspace};

    return launch(run, values);
}

/* Scales of the second level with the caller's factors, for each group; and
   where groups lie that begin at multiples of 128. */
static int prepare(const struct run *run, struct made *made)
{
    const struct quern_problem *p = &run->plan->problem;
    const int align = qn_ahead_align(p, run->recipe);

    if (qn_ahead_factors(p, run->recipe))
        made->factors = place(run, run->space.factors);
    if (align)
        made->sizes = place(run, run->space.sizes);
    if (run->plan->ahead->narrow)
        made->flags = place(run, run->space.flags);
    if (p->expand == QUERN_EXPAND_F16)
        return made->flags ? look(run, made) : QUERN_OK;
    if (run->plan->driver)
        return made->factors || made->sizes || made->flags
                   ? launch_step(run, made, align)
                   : QUERN_OK;
    if (made->factors)
        make_factors(run->args, p->groups, made->factors);
    if (made->sizes)
        make_sizes(run, align, made->sizes);
    return QUERN_OK;
}

/* ----------------------------------------------------------------- product */

/* A or B as the caller has it, but for the groups' sizes. */
static void set_given(const struct run *run, int role, struct quern_tensor *t)
{
    *t = *qn_args_tensor(run->args, role);
    t->first_dims = t->last_dims = t->offsets = NULL;
}

/* A or B as the product reads it: what was expanded, of as many rows as this
   run has, or the caller's. */
static void set_operand(const struct run *run, int role, struct quern_tensor *t)
{
    const struct quern_plan *product = run->plan->ahead->product;
    const struct qn_geometry *g = &product->operands[role];

    if (!run->plan->ahead->casts[role]) {
        set_given(run, role, t);
        return;
    }
    t->data = place(run, run->space.operand[role]);
    if (!g->grouped)
        t->shape[g->inner_ragged] =
            qn_ahead_total(&run->plan->problem, run->recipe);
}

/* A alone names the sizes. */
static void set_sizes(const struct run *run, const struct made *made, int inner,
                      struct quern_tensor *a)
{
    const void *lengths = made->sizes ? made->sizes : run->lengths;

    a->first_dims = inner ? NULL : lengths;
    a->last_dims = inner ? lengths : NULL;
    a->offsets =
        made->sizes ? made->sizes + run->plan->problem.groups : run->offsets;
    a->sizes_type = made->sizes ? QUERN_I32 : run->sizes_type;
}

/* C, D and P are the caller's, and so are factors unless they were made. */
static struct quern_args begin_args(const struct run *run,
                                    const struct quern_plan *product)
{
    struct quern_args a = *run->args;
    struct quern_tensor *const own[] = {&a.c, &a.d, &a.p};

    a.a = product->need.args.a;
    a.b = product->need.args.b;
    for (int i = 0; i < 3; i++)
        own[i]->first_dims = own[i]->last_dims = own[i]->offsets = NULL;
    a.host_sizes = NULL;
    return a;
}

static int multiply(const struct run *run, const struct made *made)
{
    const struct quern_plan *product = run->plan->ahead->product;
    struct quern_args a = begin_args(run, product);

    set_operand(run, QN_ROLE_A, &a.a);
    set_operand(run, QN_ROLE_B, &a.b);
    set_sizes(run, made, product->operands[QN_ROLE_A].inner_ragged, &a.a);
    a.noop = run->noop;
    if (made->factors) {
        a.alpha = made->factors;
        a.beta = a.beta ? a.alpha + run->plan->problem.groups : NULL;
        a.scalars = run->plan->problem.groups;
    }
    return qn_run_one(product, &a, run->stream);
}

/* -------------------------------------------------------------- FP8 and f16 */

/* One operand, unless the caller wants nothing. */
static int encode(const struct run *run, const struct made *made, int role)
{
    const struct quern_plan *plan = run->plan;
    const struct qn_reencoding e = {.problem = &plan->problem,
                                    .recipe = run->recipe,
                                    .blocks = plan->ahead->blocks,
                                    .role = role,
                                    .copy = qn_args_tensor(run->args, role),
                                    .codes = place(run, run->space.codes[role]),
                                    .sf = place(run, run->space.scales[role]),
                                    .flags = made->flags,
                                    .first_dims = run->lengths,
                                    .offsets = run->offsets,
                                    .sizes_bytes =
                                        run->sizes_type == QUERN_I64 ? 8 : 4,
                                    .noop = run->args->noop,
                                    .error = run->args->workspace};
    struct qn_driver_scope scope;
    int code = qn_driver_enter(plan->driver, plan->context, &scope);

    if (!code)
        code = qn_reencode_launch(plan->driver, &plan->ahead->encode[role], &e,
                                  run->stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

/* The product where all fits. Copies have the groups where the caller's have
   them, and so their sizes. */
static int multiply_narrow(const struct run *run, const struct made *made)
{
    const struct quern_plan *product = run->plan->ahead->narrow;
    const struct qn_recipe *blocks = run->plan->ahead->blocks;
    const struct made given = {.factors = NULL};
    struct quern_args a = begin_args(run, product);
    struct quern_tensor *const to[] = {&a.a, &a.b};

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        if (!blocks || !run->plan->ahead->encode[role].kernel) {
            set_given(run, role, to[role]);
            continue;
        }
        qn_reencode_copy(&run->plan->problem, blocks, role, to[role]);
        to[role]->data = place(run, run->space.codes[role]);
        to[role]->sf = place(run, run->space.scales[role]);
        to[role]->sizes_type = QUERN_I32;
    }
    set_sizes(run, &given, product->operands[QN_ROLE_A].inner_ragged, &a.a);
    a.noop = (const int *)(void *)made->flags;
    return qn_run_one(product, &a, run->stream);
}

/* Whether it does is known on the device alone; what follows asks there. */
static int try_narrow(struct run *run, const struct made *made)
{
    int code = QUERN_OK;

    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++)
        if (run->plan->ahead->encode[role].kernel)
            code = encode(run, made, role);
    run->noop = (const int *)(void *)(made->flags + 1);
    return code ? code : multiply_narrow(run, made);
}

static int run_ahead(const struct quern_plan *plan,
                     const struct quern_args *args, void *stream)
{
    struct run run = {.plan = plan,
                      .args = args,
                      .recipe = plan->ahead->recipe,
                      .noop = args->noop,
                      .stream = stream};
    struct made made = {.factors = NULL};
    int code = QUERN_OK;

    qn_ahead_lay_out(&plan->problem, run.recipe, plan->ahead->blocks,
                     &run.space);
    if (args->host_sizes)
        code = bring_sizes(&run);
    else
        find_sizes(&run);
    if (!code)
        code = prepare(&run, &made);
    if (!code && plan->ahead->narrow)
        code = try_narrow(&run, &made);
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++)
        code = expand(&run, role);
    return code ? code : multiply(&run, &made);
}

int qn_ahead_run_any(const struct quern_plan *plan,
                     const struct quern_args *args, void *stream)
{
    const struct quern_plan *fitted;
    struct quern_plan room;
    int code;

    if (!plan || !plan->ahead)
        return qn_run_one(plan, args, stream);
    code = qn_args_admit(plan, args, &room, &fitted);
    return code ? code : run_ahead(fitted, args, stream);
}

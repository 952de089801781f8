/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_run.c: the launches that dequantize operands before their product,
   or requantize them to FP8, or check whether f16 holds them. Flags on the
   device then skip the product that does not fit. Nothing here allocates. */
#include "base/sizes_type.h"
#include "device/driver.h"
#include "problem/dequantize_rules.h"
#include "problem/quantize.h"
#include "problem/requantize_rules.h"
#include "product/args.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

/* The flag that skips a launch. */
static const int *flag_of(const struct qn_frame *f, int flag)
{
    const int *flags = qn_frame_at(f, f->space.flags);

    return flag == QN_FLAG_CALLER ? f->args->noop
           : flag == QN_FLAG_FIT  ? flags + 1
                                  : flags;
}

/* Is there a product that runs only where all values fit? */
static unsigned *flags_of(const struct qn_frame *f)
{
    return f->plan->problem.dequantize == QUERN_DEQUANTIZE_PASS ||
                   !f->plan->driver
               ? NULL
               : qn_frame_at(f, f->space.flags);
}

/* alpha and beta with the scales of the second level, for each group; NULL: the
   caller's serve. */
static float *factors_of(const struct qn_frame *f)
{
    return qn_dequantize_factors(&f->plan->problem, f->plan->recipe)
               ? qn_frame_at(f, f->space.factors)
               : NULL;
}

/* Groups that begin at multiples of 128; NULL: they are where the caller's
   are. */
static int *sizes_of(const struct qn_frame *f)
{
    return qn_dequantize_align(&f->plan->problem, f->plan->recipe)
               ? qn_frame_at(f, f->space.sizes)
               : NULL;
}

/* ------------------------------------------------------------- preparation */

/* COUPLED: factors */
static void make_factors(const struct qn_args *args, int groups, float *to)
{
    const float *a = args->a.global, *b = args->b.global;
    const int step = args->scalars > 1;

    for (int i = 0; i < groups; i++) {
        to[i] = (a ? a[i] : 1) * (b ? b[i] : 1) *
                (args->alpha ? args->alpha[i * step] : 1);
        to[groups + i] = args->beta ? args->beta[i * step] : 1;
    }
}

static int64_t cut(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* Sizes may be: each is cut to the tokens, then to the copies' columns. */
static void make_sizes(const struct qn_frame *f, int align, int *to)
{
    const int groups = f->plan->problem.groups;
    const int64_t rows = f->plan->problem.k;
    const int64_t most =
        qn_dequantize_total(&f->plan->problem, f->plan->recipe);
    int64_t start = 0, first = 0;

    for (int i = 0; i < groups; i++) {
        const void *lengths = f->lengths ? f->lengths : f->offsets;
        int64_t length = qn_sizes_at(lengths, f->sizes_type, i + !f->lengths),
                room;

        if (!f->lengths &&
            __builtin_sub_overflow(
                length, qn_sizes_at(lengths, f->sizes_type, i), &length))
            length = 0;
        if (f->offsets)
            start = cut(qn_sizes_at(f->offsets, f->sizes_type, i), rows);
        length = cut(length, rows - start);
        start += length;
        room = most - first;
        to[i] = (int)cut(qn_quantize_round_up(length, align), room);
        to[groups + i] = (int)first;
        first += cut(qn_quantize_round_up(length, 128), room);
    }
    to[2 * groups] = (int)first;
}

static void prepare_on_host(const struct qn_frame *f)
{
    const struct qn_problem *p = &f->plan->problem;
    float *factors = factors_of(f);
    int *sizes = sizes_of(f);

    if (factors)
        make_factors(f->args, p->groups, factors);
    if (sizes)
        make_sizes(f, qn_dequantize_align(p, f->plan->recipe), sizes);
}

int qn_dequantize_prepare(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_plan *plan = f->plan;
    const struct qn_args *args = f->args;
    int step = args->scalars > 1, groups = plan->problem.groups;
    int bytes = qn_frame_sizes(f);
    int align = qn_dequantize_align(&plan->problem, plan->recipe);
    int rows = (int)qn_geometry_length(&plan->problem, plan->problem.ragged);
    const void *a = args->a.global, *b = args->b.global;
    float *factors = factors_of(f);
    int *sizes = sizes_of(f);
    unsigned *flags = flags_of(f);
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_a_global] = (void *)&a,
        [QN_PARAM_b_global] = (void *)&b,
        [QN_PARAM_alpha] = (void *)&args->alpha,
        [QN_PARAM_beta] = (void *)&args->beta,
        [QN_PARAM_scalar_step] = &step,
        [QN_PARAM_factors] = &factors,
        [QN_PARAM_first_dims] = (void *)&f->lengths,
        [QN_PARAM_offsets] = (void *)&f->offsets,
        [QN_PARAM_sizes_bytes] = &bytes,
        [QN_PARAM_groups] = &groups,
        [QN_PARAM_m] = &rows,
        [QN_PARAM_align] = &align,
        [QN_PARAM_device_sizes] = &sizes,
        [QN_PARAM_flags] = &flags,
        [QN_PARAM_noop] = (void *)&args->noop};

    if (plan->driver)
        return qn_step_launch(plan->driver, &launch->step, values, f->stream);
    prepare_on_host(f);
    return QUERN_OK;
}

/* ---------------------------------------------------------------- operands */

int qn_dequantize_check_range(struct qn_frame *f,
                              const struct qn_launch *launch)
{
    const struct qn_plan *plan = f->plan;
    const struct qn_args *args = f->args;
    const struct qn_geometry *g = plan->operands;
    long long a_stride = qn_args_stride(&args->a, &g[QN_ROLE_A]);
    long long b_stride = qn_args_stride(&args->b, &g[QN_ROLE_B]);
    int bytes = qn_frame_sizes(f);
    int m = (int)plan->problem.m, n = (int)plan->problem.n;
    int k = (int)plan->problem.k, groups = plan->problem.groups;
    unsigned *flags = flags_of(f);
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_a] = (void *)&args->a.data,
        [QN_PARAM_a_stride] = &a_stride,
        [QN_PARAM_a_sf] = (void *)&args->a.sf,
        [QN_PARAM_b] = (void *)&args->b.data,
        [QN_PARAM_b_stride] = &b_stride,
        [QN_PARAM_b_sf] = (void *)&args->b.sf,
        [QN_PARAM_first_dims] = (void *)&f->lengths,
        [QN_PARAM_offsets] = (void *)&f->offsets,
        [QN_PARAM_sizes_bytes] = &bytes,
        [QN_PARAM_groups] = &groups,
        [QN_PARAM_m] = &m,
        [QN_PARAM_n] = &n,
        [QN_PARAM_k] = &k,
        [QN_PARAM_flags] = &flags,
        [QN_PARAM_noop] = (void *)&args->noop,
        [QN_PARAM_error] = (void *)&args->workspace};

    return qn_step_launch(plan->driver, &launch->step, values, f->stream);
}

int qn_dequantize_to_fp8(struct qn_frame *f, const struct qn_launch *launch)
{
    const int role = launch->role;
    const struct qn_reencoding e = {.problem = &f->plan->problem,
                                    .recipe = f->plan->recipe,
                                    .target = f->plan->target,
                                    .role = role,
                                    .copy = qn_args_tensor(f->args, role),
                                    .codes =
                                        qn_frame_at(f, f->space.codes[role]),
                                    .sf = qn_frame_at(f, f->space.scales[role]),
                                    .flags = flags_of(f),
                                    .first_dims = f->lengths,
                                    .offsets = f->offsets,
                                    .sizes_bytes = qn_frame_sizes(f),
                                    .noop = f->args->noop,
                                    .error = f->args->workspace};

    return qn_requantize_launch(f->plan->driver, &launch->step, &e, f->stream);
}

/* The number of tokens, to where a cast of all of them reads it. */
static int put_count(const struct qn_frame *f, const int **count)
{
    const struct qn_plan *plan = f->plan;
    const int tokens = (int)plan->problem.tokens;
    int *const to = qn_frame_at(f, f->space.count);

    *count = to;
    if (plan->driver)
        return QN_CU(plan->driver, cuMemsetD32Async, (uint64_t)(uintptr_t)to,
                     (unsigned)tokens, 1, f->stream);
    *to = tokens;
    return QUERN_OK;
}

/* Sizes of the tensor's groups: of tokens that a product gathers one, of all of
   them. */
static int set_groups(const struct qn_frame *f, struct qn_expansion *e)
{
    const int *count;
    int code;

    e->first_dims = f->lengths;
    e->offsets = f->offsets;
    e->sizes_bytes = qn_frame_sizes(f);
    e->align = qn_dequantize_align(&f->plan->problem, f->plan->recipe);
    if (!f->plan->problem.gather)
        return QUERN_OK;
    code = put_count(f, &count);
    e->first_dims = count;
    e->offsets = NULL;
    e->sizes_bytes = sizeof *count;
    return code;
}

int qn_dequantize_to_bf16(struct qn_frame *f, const struct qn_launch *launch)
{
    const int role = launch->role;
    struct qn_quantization q;
    int code = QUERN_OK;
    struct qn_expansion e = {.q = &q,
                             .copy = qn_args_tensor(f->args, role),
                             .out = qn_frame_at(f, f->space.operand[role]),
                             .noop = flag_of(f, launch->flag),
                             .error = f->args->workspace};

    qn_dequantize_cast(&f->plan->problem, f->plan->recipe, role, &q);
    if (q.of != QN_W)
        code = set_groups(f, &e);
    return code ? code : qn_quantize_unpack(launch->cast, &e, f->stream);
}

/* ----------------------------------------------------------------- product */

/* The caller's operand, without its arrays of sizes. */
static void set_given(const struct qn_frame *f, int role, struct qn_tensor *t)
{
    *t = *qn_args_tensor(f->args, role);
    t->first_dims = t->last_dims = t->offsets = NULL;
}

/* In bf16, with as many rows as this run has; or the caller's. */
static void set_dequantized(const struct qn_frame *f,
                            const struct qn_plan *product, int role,
                            struct qn_tensor *t)
{
    const struct qn_problem *p = &f->plan->problem;
    const struct qn_geometry *g = &product->operands[role];
    struct qn_quantization q;

    if (!qn_dequantize_cast(p, f->plan->recipe, role, &q)) {
        set_given(f, role, t);
        return;
    }
    *t = *qn_args_tensor(&product->need.args, role);
    t->data = qn_frame_at(f, f->space.operand[role]);
    if (!g->grouped)
        t->shape[g->inner_ragged] =
            g->gathered ? p->tokens : qn_dequantize_total(p, f->plan->recipe);
}

/* In FP8, or the caller's. The groups begin where the caller's do. */
static void set_requantized(const struct qn_frame *f, int role,
                            struct qn_tensor *t)
{
    const struct qn_plan *plan = f->plan;

    if (!plan->target ||
        !qn_requantize_does(&plan->problem, plan->recipe, role)) {
        set_given(f, role, t);
        return;
    }
    qn_requantize_copy(&plan->problem, plan->target, role, t);
    t->data = qn_frame_at(f, f->space.codes[role]);
    t->sf = qn_frame_at(f, f->space.scales[role]);
    t->sizes_type = QUERN_I32;
}

/* Only A has the groups' sizes, or D where A's rows are gathered: int32 lengths
   and offsets of its own, or those of the caller. */
static void set_sizes(const struct qn_frame *f, const int *own, int inner,
                      struct qn_tensor *a)
{
    const void *lengths = own ? own : f->lengths;

    a->first_dims = inner ? NULL : lengths;
    a->last_dims = inner ? lengths : NULL;
    a->offsets = own ? own + f->plan->problem.groups : f->offsets;
    a->sizes_type = own ? QUERN_I32 : f->sizes_type;
}

static void set_factors(const struct qn_frame *f, struct qn_args *a)
{
    const int groups = f->plan->problem.groups;
    const float *factors = factors_of(f);

    if (!factors)
        return;
    a->alpha = factors;
    a->beta = a->beta ? factors + groups : NULL;
    a->scalars = groups;
}

void qn_dequantize_args(const struct qn_frame *f,
                        const struct qn_launch *launch, struct qn_args *a)
{
    const struct qn_plan *product = launch->product;
    const int narrow = launch->operands == QN_OPERANDS_REQUANTIZED;
    struct qn_tensor *const operands[] = {&a->a, &a->b};
    struct qn_tensor *const own[] = {&a->c, &a->d, &a->p};

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        if (narrow)
            set_requantized(f, role, operands[role]);
        else
            set_dequantized(f, product, role, operands[role]);
    }
    for (int i = 0; i < 3; i++)
        own[i]->first_dims = own[i]->last_dims = own[i]->offsets = NULL;
    set_sizes(f, narrow ? NULL : sizes_of(f),
              product->operands[QN_ROLE_A].inner_ragged,
              product->problem.gather ? &a->d : &a->a);
    if (!narrow)
        set_factors(f, a);
    a->host_sizes = NULL;
    a->noop = flag_of(f, launch->flag);
}

/*
** cublaslt_loop.c: a grouped product as a loop over its groups, with sizes
** that the host knows.
**
** Evenly spaced groups of one size go as one batch. A group without rows or
** columns has nothing to compute; one whose summed axis is empty gets zeros,
** keeps D, or gets beta C: the product of zeros, since cuBLAS sums at least
** one value.
**
** Scaled FP8 is a recipe's copies as they are, one product for each group with
** its scales' addresses: one fp32 for all of A and all of B, or one for each of
** their rows (from version 12.9 on). Rows end with zeros up to 16 bytes, which
** are summed with the others.
**
** The workspace, from its first byte:
**
**     256             the error record, which this backend leaves alone
**     256             1.0f and 0.0f, written by runs that need them
**     zeros_bytes     zeros, written by runs that need them
**     to the end      cuBLASLt's scratch, at a multiple of 256
*/
#include "cublaslt_loop.h"
#include "context.h"
#include "cublaslt_product.h"
#include "text.h"
#include "types.h"

#include <stdlib.h>

enum {
    CONSTANTS = QN_WORKSPACE_BYTES,
    ZEROS = CONSTANTS + 256,
    ROW_BYTES = 16,        /* of zeros, and what FP8 rows are multiples of */
    COPY_START = 128,      /* groups of a column copy start at multiples */
    OUTER_VECTORS = 120900 /* the version that has them */
};

static const float one = 1, zero = 0;

static uintptr_t round_up(uintptr_t value)
{
    return (value + QN_CUBLASLT_ALIGNMENT - 1) &
           ~(uintptr_t)(QN_CUBLASLT_ALIGNMENT - 1);
}

/* ---------------------------------------------------------------- planning */

/* Both operands of beta C for an empty sum, which share their zeros. */
static size_t zeros_bytes(const struct quern_problem *p)
{
    int64_t longer = p->m > p->n ? p->m : p->n;

    if (p->ragged != QUERN_AXIS_K || p->beta != QUERN_BETA_ANY)
        return 0;
    return (size_t)longer * ROW_BYTES;
}

size_t qn_cublaslt_workspace(const struct quern_problem *p)
{
    return ZEROS + round_up(zeros_bytes(p)) + QN_CUBLASLT_ALIGNMENT +
           QN_CUBLASLT_SCRATCH;
}

/* Scalars of the caller's lie on the device; constants may lie here. */
static int has_scalars(const struct quern_problem *p)
{
    return p->alpha || p->beta == QUERN_BETA_ANY;
}

/* A recipe's scales as the library takes them: of a whole matrix, which may be
   a group's, or of each row. Those of blocks lie otherwise than it wants them,
   since the groups of one buffer share their lines. */
static int check_scales(const struct quern_problem *p,
                        const struct qn_recipe *recipe,
                        const struct qn_geometry *a,
                        const struct qn_geometry *b)
{
    const struct qn_scaling *left = a->sf.scaling, *right = b->sf.scaling;

    if (!left || !right || left->span != right->span ||
        left->span == QN_SPAN_BLOCK || left->type != QUERN_F32)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes fp32 scales of a row, a "
                            "group or a tensor: recipe %s has others",
                            recipe->name);
    if (p->ragged == QUERN_AXIS_N)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes no scales with ragged=n");
    if (p->n % ROW_BYTES)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes FP8 where n is a multiple "
                            "of %d, here it is %lld",
                            ROW_BYTES, (long long)p->n);
    return QUERN_OK;
}

int qn_cublaslt_serves(const struct quern_problem *p,
                       const struct qn_recipe *recipe)
{
    struct qn_geometry a, b;
    int code = QUERN_OK;

    qn_geometry_of(p, recipe, QN_ROLE_A, &a);
    qn_geometry_of(p, recipe, QN_ROLE_B, &b);
    if (recipe->scaled)
        code = check_scales(p, recipe, &a, &b);
    if (code)
        return code;
    if (p->pointers)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes operands in one buffer, "
                            "the problem says pointers=");
    if (!qn_cublaslt_has(a.type, b.type, p->d_type))
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt has no product %s x %s -> %s: "
                            "bf16 -> bf16 or f32, f16 -> f16 or f32 and scaled "
                            "FP8, of both at most one e5m2, are possible",
                            qn_type_name(a.type), qn_type_name(b.type),
                            qn_type_name(p->d_type));
    return QUERN_OK;
}

/* By the span of the scales, which both operands share. */
static enum qn_cublaslt_scale scale_of(const struct qn_geometry *a)
{
    if (!a->sf.scaling)
        return QN_CUBLASLT_UNSCALED;
    return a->sf.scaling->span == QN_SPAN_ROW     ? QN_CUBLASLT_ROWS
           : a->sf.scaling->span == QN_SPAN_GROUP ? QN_CUBLASLT_GROUPS
                                                  : QN_CUBLASLT_TENSORS;
}

/* Rules that the library's version decides about. */
static int check_version(const struct qn_cublaslt *lt,
                         const struct qn_geometry *a)
{
    if (scale_of(a) != QN_CUBLASLT_ROWS || lt->number >= OUTER_VECTORS)
        return QUERN_OK;
    return qn_error_set(QUERN_ENOKERNEL,
                        "backend cublaslt takes scales of rows from cublasLt "
                        "12.9 on, this is %s",
                        lt->version);
}

int qn_cublaslt_plan(struct quern_plan *plan, const struct qn_recipe *recipe,
                     int sms)
{
    const struct quern_problem *p = &plan->problem;
    const struct qn_geometry *a = &plan->operands[QN_ROLE_A];
    const struct qn_cublaslt_make make = {
        .a_type = a->type,
        .b_type = plan->operands[QN_ROLE_B].type,
        .scale = (int)scale_of(a),
        .fast = !recipe->promote,
        .d_type = p->d_type,
        .a_major = p->a_major,
        .b_major = p->b_major,
        .device_scalars = has_scalars(p),
        .sms = sms,
        .groups = p->groups,
    };
    struct qn_cublaslt *lt;
    int code = qn_cublaslt_serves(p, recipe);

    if (!code)
        code = qn_context_cublaslt(plan->ctx, &lt);
    if (!code)
        code = check_version(lt, a);
    if (code)
        return code;
    plan->need.workspace_bytes = qn_cublaslt_workspace(p);
    plan->products = malloc(sizeof *plan->products);
    if (!plan->products)
        return qn_error_memory();
    code = qn_cublaslt_engine_open(plan->products, lt, &make);
    if (code) {
        free(plan->products);
        plan->products = NULL;
    }
    return code;
}

void qn_cublaslt_why(struct quern_context *ctx, const struct quern_problem *p,
                     const struct qn_recipe *recipe, struct qn_text *text)
{
    struct qn_cublaslt *lt;
    struct qn_geometry a;
    int code = qn_cublaslt_serves(p, recipe);

    qn_geometry_of(p, recipe, QN_ROLE_A, &a);
    if (!code)
        code = qn_context_cublaslt(ctx, &lt);
    if (!code)
        code = check_version(lt, &a);
    if (code)
        qn_text_add(text, "nothing runs\n    %s\n", qn_error_text());
    else
        qn_text_add(text,
                    "> %s\n    %s; sizes are host_sizes; %zu bytes of "
                    "workspace\n    because it was asked for: no plan takes "
                    "this backend by itself\n",
                    lt->names[scale_of(&a)],
                    p->ragged == QUERN_AXIS_NONE && !recipe->scaled
                        ? "all groups as one batch"
                        : "one product for each group, in a loop on the host",
                    qn_cublaslt_workspace(p));
}

/* In its own context where that can be entered; the memory goes either way. */
void qn_cublaslt_plan_free(struct quern_plan *plan)
{
    struct qn_driver_scope scope;

    if (!plan->products || !qn_context_here(plan->ctx))
        return;
    qn_driver_enter(plan->driver, plan->context, &scope);
    qn_cublaslt_engine_close(plan->products);
    qn_driver_leave(plan->driver, &scope);
    free(plan->products);
}

/* ---------------------------------------------------------------- checking */

/* None negative, and no more in all than the ragged axis has. */
static int check_lengths(const struct quern_problem *p, const int64_t *sizes)
{
    int64_t left = qn_geometry_length(p, p->ragged);

    for (int g = 0; g < p->groups; g++) {
        if (sizes[g] < 0)
            return qn_error_set(QUERN_EINVAL, "host_sizes[%d] is %lld: %s", g,
                                (long long)sizes[g],
                                "a group's size must not be negative");
        if (sizes[g] > left)
            return qn_error_set(QUERN_EINVAL,
                                "host_sizes[%d] is %lld: the groups pass "
                                "%s=%lld",
                                g, (long long)sizes[g], qn_axis_name(p->ragged),
                                (long long)qn_geometry_length(p, p->ragged));
        left -= sizes[g];
    }
    return QUERN_OK;
}

/* What lies on the device stays there: the host cannot read it. */
static int check_tensor(char name, const struct quern_tensor *t)
{
    const struct {
        const char *field;
        const void *value, *instead;
    } arrays[] = {
        {"first_dims", t->first_dims, "host_sizes"},
        {"last_dims", t->last_dims, "host_sizes"},
        {"offsets", t->offsets, "host_sizes, without gaps"},
        {"pointers", t->pointers, "data and group_stride"},
    };

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (arrays[i].value)
            return qn_error_set(QUERN_EINVAL,
                                "%c.%s is not NULL: the cublaslt backend "
                                "reads nothing on the device; it takes %s",
                                name, arrays[i].field,
                                (const char *)arrays[i].instead);
    return QUERN_OK;
}

int qn_cublaslt_check(const struct quern_plan *plan,
                      const struct quern_args *args)
{
    const struct quern_problem *p = &plan->problem;
    int code = check_tensor('a', &args->a);

    if (!code)
        code = check_tensor('b', &args->b);
    if (!code)
        code = check_tensor('c', &args->c);
    if (!code)
        code = check_tensor('d', &args->d);
    if (code)
        return code;
    if (p->ragged == QUERN_AXIS_NONE)
        return args->host_sizes
                   ? qn_error_set(QUERN_EINVAL, "host_sizes is not NULL: no "
                                                "axis of the problem is "
                                                "ragged")
                   : QUERN_OK;
    if (!args->host_sizes)
        return qn_error_set(QUERN_EINVAL,
                            "host_sizes is NULL: the cublaslt backend needs "
                            "the %d groups' sizes on the host",
                            p->groups);
    return check_lengths(p, args->host_sizes);
}

/* ----------------------------------------------------------------- running */

/* One run; the fields below `product` do not change from group to group. */
struct loop {
    struct qn_cublaslt_product product;
    const struct quern_plan *plan;
    const struct qn_values *values;
    const float *alpha, *beta; /* of the first group */
    int64_t alpha_step, beta_step;
    char *zeros;
    int zeroed; /* the run has written the zeros */
    int scaled; /* FP8: rows of 16 bytes, padded with zeros */
};

/* 1.0f and 0.0f on the device, for the scalar that the problem fixes. */
static int write_constants(const struct quern_plan *plan, const void *at,
                           struct cu_stream *stream)
{
    const struct {
        uint64_t address;
        unsigned bits;
    } words[] = {{(uintptr_t)at, 0x3F800000}, {(uintptr_t)at + sizeof one, 0}};
    int code = QUERN_OK;

    for (int i = 0; !code && i < 2; i++)
        code = QN_CU(plan->driver, cuMemsetD32Async, words[i].address,
                     words[i].bits, 1, stream);
    return code;
}

/* All on the device or all here, as the library's pointer mode wants it. */
static int set_scalars(struct loop *l, struct cu_stream *stream)
{
    const struct quern_problem *p = &l->plan->problem;
    const struct qn_values *v = l->values;
    const float *ones = &one, *zeros = &zero;
    int code = QUERN_OK;

    if (has_scalars(p)) {
        ones = (const float *)((char *)v->error + CONSTANTS);
        zeros = ones + 1;
        if (!p->alpha || p->beta != QUERN_BETA_ANY)
            code = write_constants(l->plan, ones, stream);
    }
    l->alpha = p->alpha ? v->alpha : ones;
    l->alpha_step = p->alpha ? v->scalar_step : 0;
    l->beta = p->beta == QUERN_BETA_ANY   ? v->beta
              : p->beta == QUERN_BETA_ONE ? ones
                                          : zeros;
    l->beta_step = p->beta == QUERN_BETA_ANY ? v->scalar_step : 0;
    return code;
}

/* Without an array of its own, C is D. */
static void set_matrices(struct loop *l)
{
    const struct qn_values *v = l->values;
    struct qn_cublaslt_matrix *x = l->product.matrices;

    x[QN_LT_A] = (struct qn_cublaslt_matrix){(void *)(uintptr_t)v->a,
                                             v->a_stride, v->a_group_stride};
    x[QN_LT_B] = (struct qn_cublaslt_matrix){(void *)(uintptr_t)v->b,
                                             v->b_stride, v->b_group_stride};
    x[QN_LT_D] =
        (struct qn_cublaslt_matrix){v->d, v->d_stride, v->d_group_stride};
    x[QN_LT_C] = x[QN_LT_D];
    if (l->plan->problem.beta == QUERN_BETA_ANY)
        x[QN_LT_C] = (struct qn_cublaslt_matrix){
            (void *)(uintptr_t)v->c, v->c_stride, v->c_group_stride};
}

/* What is summed of a copy: its rows end with zeros. */
static int64_t row_of(int64_t k)
{
    return (k + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES;
}

static int start_loop(struct loop *l, const struct quern_plan *plan,
                      const struct qn_values *values, struct cu_stream *stream)
{
    const struct quern_problem *p = &plan->problem;
    char *workspace = (char *)values->error;

    *l = (struct loop){
        .plan = plan,
        .values = values,
        .zeros = workspace + ZEROS,
        .scaled = plan->scaled,
        .product = {.form = QN_CUBLASLT_PLAIN,
                    .m = p->m,
                    .n = p->n,
                    .k = plan->scaled ? row_of(p->k) : p->k,
                    .batch = 1,
                    .stream = stream},
    };
    l->product.scratch = (void *)round_up((uintptr_t)l->zeros + zeros_bytes(p));
    set_matrices(l);
    return set_scalars(l, stream);
}

/* The operand's matrix of one group, whose ragged axis begins at `start`. */
static void move_to(const struct qn_geometry *g, int group, int64_t start,
                    struct qn_cublaslt_matrix *matrix)
{
    int64_t elements = g->grouped        ? group * matrix->step
                       : g->inner_ragged ? start
                                         : start * matrix->stride;

    elements *= qn_type_bits(g->type) / 8;
    matrix->data = (void *)((uintptr_t)matrix->data + (uintptr_t)elements);
}

/* The scales of one group; those of rows start where the rows do. */
static const float *scales_of(const struct qn_geometry *g, const float *sf,
                              int group, int64_t start)
{
    const struct qn_scales *s = &g->sf;

    if (!s->scaling)
        return NULL;
    if (s->group_stride)
        return sf + group * s->group_stride;
    return s->scaling->span == QN_SPAN_ROW ? sf + start : sf;
}

/* D = 0; its rows may have gaps, which stay as they are. */
static int clear(const struct loop *l, const struct qn_cublaslt_product *p)
{
    const struct qn_cublaslt_matrix *d = &p->matrices[QN_LT_D];
    struct qn_driver *driver = l->plan->driver;
    const size_t bytes = (size_t)qn_type_bits(l->plan->problem.d_type) / 8;
    const size_t width = (size_t)p->n * bytes;
    const uint64_t address = (uintptr_t)d->data;

    if (d->stride == p->n)
        return QN_CU(driver, cuMemsetD8Async, address, 0, (size_t)p->m * width,
                     p->stream);
    return QN_CU(driver, cuMemsetD2D8Async, address, (size_t)d->stride * bytes,
                 0, width, (size_t)p->m, p->stream);
}

/* D = beta C: A and B are zeros, as few as the tensor cores like to read. */
static int scale(struct loop *l, struct qn_cublaslt_product *p)
{
    const int64_t k = ROW_BYTES / (l->scaled ? 1 : 2);
    const struct qn_cublaslt_matrix zeros = {l->zeros, k, 0};
    int code = QUERN_OK;

    if (!l->zeroed)
        code = QN_CU(l->plan->driver, cuMemsetD8Async, (uintptr_t)l->zeros, 0,
                     zeros_bytes(&l->plan->problem), p->stream);
    l->zeroed = 1;
    p->form = QN_CUBLASLT_ZEROS;
    p->k = k;
    p->scales[QN_LT_A] = p->scales[QN_LT_B] = NULL;
    p->matrices[QN_LT_A] = p->matrices[QN_LT_B] = zeros;
    return code ? code : qn_cublaslt_multiply(l->plan->products, p);
}

/* A sum of no values. */
static int multiply_nothing(struct loop *l, struct qn_cublaslt_product *p)
{
    switch (l->plan->problem.beta) {
    case QUERN_BETA_ZERO:
        return clear(l, p);
    case QUERN_BETA_ONE:
        return QUERN_OK;
    }
    return scale(l, p);
}

static int multiply_group(struct loop *l, int group, int64_t start,
                          int64_t length)
{
    const struct quern_plan *plan = l->plan;
    struct qn_cublaslt_product p = l->product;
    int64_t *const axes[] = {
        [QUERN_AXIS_M] = &p.m, [QUERN_AXIS_N] = &p.n, [QUERN_AXIS_K] = &p.k};
    static const int roles[QN_LT_MATRICES] = {QN_ROLE_A, QN_ROLE_B, QN_ROLE_C,
                                              QN_ROLE_D};

    if (plan->problem.ragged != QUERN_AXIS_NONE)
        *axes[plan->problem.ragged] =
            l->scaled && plan->problem.ragged == QUERN_AXIS_K ? row_of(length)
                                                              : length;
    if (p.m == 0 || p.n == 0)
        return QUERN_OK;
    for (int i = 0; i < QN_LT_MATRICES; i++)
        move_to(&plan->operands[roles[i]], group, start, &p.matrices[i]);
    p.scales[QN_LT_A] =
        scales_of(&plan->operands[QN_ROLE_A], l->values->a_sf, group, start);
    p.scales[QN_LT_B] =
        scales_of(&plan->operands[QN_ROLE_B], l->values->b_sf, group, start);
    p.alpha = l->alpha + group * l->alpha_step;
    p.beta = l->beta + group * l->beta_step;
    return p.k ? qn_cublaslt_multiply(plan->products, &p)
               : multiply_nothing(l, &p);
}

/* All groups at once. */
static int multiply_batch(struct loop *l)
{
    l->product.batch = l->plan->problem.groups;
    l->product.alpha = l->alpha;
    l->product.beta = l->beta;
    return qn_cublaslt_multiply(l->plan->products, &l->product);
}

static int check_capture(const struct quern_plan *plan,
                         struct cu_stream *stream)
{
    int code = qn_driver_no_capture(plan->driver, stream, "this run");

    if (code == QUERN_ECAPTURE)
        qn_error_set(code, "the stream captures a graph: host_sizes would be "
                           "frozen into the graph");
    return code;
}

/* Group after group; where no axis is ragged, all at once if that will do. */
static int multiply_all(struct loop *l, const int64_t *sizes)
{
    /* column copies start their groups at multiples */
    const int64_t step =
        l->scaled && l->plan->problem.ragged == QUERN_AXIS_K ? COPY_START : 1;
    int64_t start = 0;
    int code = QUERN_OK;

    if (!sizes && !l->scaled && !l->alpha_step && !l->beta_step)
        return multiply_batch(l);
    for (int g = 0; !code && g < l->plan->problem.groups; g++) {
        code = multiply_group(l, g, start, sizes ? sizes[g] : 0);
        start += sizes ? (sizes[g] + step - 1) / step * step : 0;
        if (code)
            qn_error_add("  of group %d", g);
    }
    return code;
}

int qn_cublaslt_run(const struct quern_plan *plan,
                    const struct qn_values *values, const int64_t *sizes,
                    struct cu_stream *stream)
{
    struct qn_driver_scope scope;
    struct loop l;
    int code = qn_driver_enter(plan->driver, plan->context, &scope);

    if (!code && sizes)
        code = check_capture(plan, stream);
    if (!code)
        code = start_loop(&l, plan, values, stream);
    if (!code)
        code = multiply_all(&l, sizes);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

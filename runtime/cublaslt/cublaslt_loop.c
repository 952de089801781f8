/* SPDX-License-Identifier: Apache-2.0 */
/*
** cublaslt_loop.c: a grouped product as a loop over its groups.
**
** Evenly spaced groups of one size go as one batch. A group without rows or
** columns has nothing to compute; one whose summed axis is empty gets zeros,
** keeps D, or gets beta C: the product of zeros, since cuBLAS sums at least
** one value. The amount of work decides which of several streams a group takes.
** If the library multiplies groups in one call, the kernel that loads sizes
** from the host leaves them in the workspace.
**
** Scaled FP8 multiplies a recipe's copies, one product for each group; zeros
** that end rows at 16 bytes are summed, too. Scales of blocks [k / 128][rows]
** have one line for all groups, where the library wants each group's: they are
** copied together first, and the rows after the last whole four by themselves.
*/
#include "cublaslt/cublaslt_loop.h"
#include "base/error.h"
#include "base/sizes_type.h"
#include "base/types.h"
#include "choose/host_sizes.h"
#include "cublaslt/cublaslt_product.h"
#include "cublaslt/cublaslt_room.h"
#include "device/driver.h"
#include "problem/host_sizes_rules.h"
#include "product/args.h"
#include "product/plan.h"

enum {
    BLOCK = 128, /* columnwise groups start at multiples; fp32 scales */
    TILE_COLUMNS = 4
};

static const float one = 1, zero = 0;

/* ---------------------------------------------------------------- checking */

/* The host cannot read device memory. */
static int check_tensor(const char *name, const struct qn_tensor *t)
{
    const struct {
        const char *name, *instead;
        const void *value;
    } arrays[] = {
        {"lengths", "host_sizes", t->first_dims},
        {"lengths", "host_sizes", t->last_dims},
        {qn_sizes_operand(t->sizes_type), "host_sizes, without gaps",
         t->offsets},
    };

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (arrays[i].value)
            return qn_error_set(QUERN_EINVAL,
                                "%s is not NULL: the cublaslt backend reads "
                                "nothing on the device; it takes %s",
                                arrays[i].name, arrays[i].instead);
    if (t->pointers)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: the cublaslt backend "
                            "reads nothing on the device; it takes %s",
                            name, name);
    return QUERN_OK;
}

int qn_cublaslt_check(const struct qn_plan *plan, const struct qn_args *args)
{
    const struct qn_problem *p = &plan->problem;
    int code = QUERN_OK;

    for (int role = QN_ROLE_A; role <= QN_ROLE_D && !code; role++)
        code = check_tensor(qn_args_names[role], qn_args_tensor(args, role));
    if (code)
        return code;
    if (args->noop)
        return qn_error_set(QUERN_EINVAL, "noop is not NULL: the cublaslt "
                                          "backend does not support it");
    if (p->ragged == QUERN_AXIS_NONE)
        return QUERN_OK;
    if (!args->host_sizes)
        return qn_error_set(QUERN_EINVAL,
                            "host_sizes is NULL: the cublaslt backend needs "
                            "the %d groups' sizes on the host",
                            p->groups);
    return qn_host_size_check(args->host_sizes, p->groups,
                              qn_axis_name(p->ragged),
                              qn_geometry_length(p, p->ragged));
}

/* ----------------------------------------------------------------- running */

/* One run; the fields below `product` do not change from group to group. */
struct loop {
    struct qn_cublaslt_product product;
    const struct qn_plan *plan;
    const struct qn_values *values;
    const float *alpha, *beta; /* of the first group */
    int64_t alpha_step, beta_step;
    struct qn_cublaslt_room room;
    char *workspace, *lanes; /* the latter aligned */
    int scaled;              /* FP8: rows of 16 bytes, padded with zeros */
    int gathers;             /* A's scales are copied together */
    int together;            /* groups that have any products are done */
    struct qn_cublaslt_fork fork;
};

/* The start of a group. */
struct slot {
    int group;
    int64_t start, length; /* along the ragged axis */
    int64_t tiles;         /* of 128 rows in the groups before it */
    int64_t gathered;      /* rows of gathered scales before it */
};

/* 1.0f and 0.0f on the device, for the scalar that the problem fixes. */
static int write_constants(const struct qn_plan *plan, const void *at,
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
    const struct qn_problem *p = &l->plan->problem;
    const struct qn_values *v = l->values;
    const float *ones = &one, *zeros = &zero;
    int code = QUERN_OK;

    if (l->plan->products->device_scalars) {
        ones = (const float *)(l->workspace + QN_WORKSPACE_BYTES);
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

/* Is there a sum of no values that beta C is the result of? */
static int needs_zeros(const struct qn_plan *plan, const int64_t *sizes)
{
    const struct qn_problem *p = &plan->problem;

    for (int g = 0; p->ragged == QUERN_AXIS_K && g < p->groups; g++)
        if (!sizes[g])
            return p->beta == QUERN_BETA_ANY;
    return 0;
}

static int start_loop(struct loop *l, const struct qn_plan *plan,
                      const struct qn_values *values, const int64_t *sizes,
                      struct cu_stream *stream)
{
    const struct qn_problem *p = &plan->problem;
    const struct qn_geometry *a = &plan->operands[QN_ROLE_A];
    uintptr_t lanes;
    int code;

    *l = (struct loop){
        .plan = plan,
        .values = values,
        .workspace = (char *)values->error,
        .scaled = plan->scaled,
        .gathers = qn_cublaslt_gathers(a),
        .product = {.form = QN_CUBLASLT_PLAIN,
                    .m = p->m,
                    .n = p->n,
                    .k = plan->scaled ? qn_cublaslt_row(p->k) : p->k,
                    .batch = 1,
                    .stream = stream},
    };
    qn_cublaslt_room(p, a, plan->products->grouped, plan->products->lanes.count,
                     &l->room);
    lanes = (uintptr_t)l->workspace + l->room.lanes + QN_CUBLASLT_ALIGNMENT - 1;
    l->lanes = (char *)(lanes / QN_CUBLASLT_ALIGNMENT * QN_CUBLASLT_ALIGNMENT);
    l->product.scratch = l->lanes;
    set_matrices(l);
    code = set_scalars(l, stream);
    if (!code && needs_zeros(plan, sizes))
        code = QN_CU(plan->driver, cuMemsetD8Async,
                     (uintptr_t)l->workspace + l->room.zeros, 0,
                     l->room.zeros_bytes, stream);
    return code;
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

/* The scales of one group, by how many of them are before it. */
static const void *scales_of(const struct qn_geometry *g, const void *sf,
                             const struct slot *at)
{
    const struct qn_scales *s = &g->sf;
    const int bytes = s->scaling ? qn_type_bits(s->scaling->type) / 8 : 0;
    int64_t before = 0;

    if (!s->scaling)
        return NULL;
    if (s->group_stride)
        before = at->group * s->group_stride;
    else if (s->scaling->span == QN_SPAN_ROW)
        before = at->start;
    else if (s->scaling->span != QN_SPAN_BLOCK)
        before = 0;
    else if (s->copy == QUERN_ROWWISE) /* in tiles: others are gathered */
        before = at->tiles * s->stride;
    else if (s->scaling->order == QN_ORDER_COLUMNS)
        before = at->start / BLOCK * s->stride;
    else
        before = (g->rows + BLOCK - 1) / BLOCK * at->start * TILE_COLUMNS;
    return (const char *)sf + before * bytes;
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
    const int64_t k = QN_CUBLASLT_ROW_BYTES / (l->scaled ? 1 : 2);
    const struct qn_cublaslt_matrix zeros = {l->workspace + l->room.zeros, k,
                                             0};

    p->form = QN_CUBLASLT_ZEROS;
    p->k = k;
    p->scales[QN_LT_A] = p->scales[QN_LT_B] = NULL;
    p->matrices[QN_LT_A] = p->matrices[QN_LT_B] = zeros;
    return qn_cublaslt_multiply(l->plan->products, p);
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

/* Rows of `width` bytes, with so many bytes between their starts. */
static int copy_rows(const struct loop *l, struct cu_stream *stream,
                     const struct qn_cublaslt_matrix *from,
                     const struct qn_cublaslt_matrix *to, int64_t rows,
                     int64_t width)
{
    const struct cu_copy copy = {
        .from = {.memory = QN_CU_MEMORY_DEVICE,
                 .device = (uintptr_t)from->data,
                 .pitch = (size_t)from->stride},
        .to = {.memory = QN_CU_MEMORY_DEVICE,
               .device = (uintptr_t)to->data,
               .pitch = (size_t)to->stride},
        .width = (size_t)width,
        .height = (size_t)rows,
    };

    return QN_CU(l->plan->driver, cuMemcpy2DAsync_v2, &copy, stream);
}

/* The scales of `rows` rows from `row` on, as the library wants those of
   p->m; `done` rows have been gathered. */
static int gather(const struct loop *l, struct qn_cublaslt_product *p,
                  int64_t row, int64_t rows, int64_t done)
{
    const struct qn_scales *s = &l->plan->operands[QN_ROLE_A].sf;
    const int64_t lines = (l->plan->problem.k + BLOCK - 1) / BLOCK;
    const int64_t bytes = sizeof(float);
    const struct qn_cublaslt_matrix from = {
        (void *)(uintptr_t)(l->values->a_sf + row), s->stride * bytes, 0};
    const struct qn_cublaslt_matrix to = {
        l->workspace + l->room.scales + done * lines * bytes, p->m * bytes, 0};

    p->scales[QN_LT_A] = to.data;
    return copy_rows(l, p->stream, &from, &to, lines, rows * bytes);
}

/* A matrix as copy_rows takes it. */
static struct qn_cublaslt_matrix in_bytes(struct qn_cublaslt_matrix matrix,
                                          int type)
{
    matrix.stride = matrix.stride * qn_type_bits(type) / 8;
    return matrix;
}

/* The last rows of a group, fewer than 4: through the lane's memory. */
static int multiply_rest(const struct loop *l, struct qn_cublaslt_product *p,
                         const struct slot *at, int64_t rows)
{
    const struct qn_problem *problem = &l->plan->problem;
    const int type = l->plan->operands[QN_ROLE_A].type;
    const int64_t whole = at->length - rows;
    const int64_t width = p->n * qn_type_bits(problem->d_type) / 8;
    char *lane = p->scratch;
    struct qn_cublaslt_matrix x[QN_LT_MATRICES],
        a = {lane + l->room.a_rows, p->k, 0},
        d = {lane + l->room.d_rows, p->n, 0}, to;
    int code;

    for (int i = 0; i < QN_LT_MATRICES; i++) {
        x[i] = in_bytes(p->matrices[i], i == QN_LT_A ? type : problem->d_type);
        x[i].data = (char *)x[i].data + whole * x[i].stride;
    }
    p->m = QN_CUBLASLT_ROWS;
    p->matrices[QN_LT_A] = a;
    p->matrices[QN_LT_C] = p->matrices[QN_LT_D] = d;
    code = gather(l, p, at->start + whole, rows, at->gathered + whole);
    to = in_bytes(a, type);
    if (!code)
        code = copy_rows(l, p->stream, &x[QN_LT_A], &to, rows, p->k);
    to = in_bytes(d, problem->d_type);
    if (!code && problem->beta != QUERN_BETA_ZERO)
        code = copy_rows(l, p->stream, &x[QN_LT_C], &to, rows, width);
    if (!code)
        code = qn_cublaslt_multiply(l->plan->products, p);
    return code ? code : copy_rows(l, p->stream, &to, &x[QN_LT_D], rows, width);
}

/* A group whose scales are among those of the others. */
static int multiply_gathered(const struct loop *l,
                             const struct qn_cublaslt_product *group,
                             const struct slot *at)
{
    const int64_t rest = at->length % QN_CUBLASLT_ROWS;
    struct qn_cublaslt_product p = *group;
    int code = QUERN_OK;

    p.m = at->length - rest;
    if (p.m)
        code = gather(l, &p, at->start, p.m, at->gathered);
    if (!code && p.m)
        code = qn_cublaslt_multiply(l->plan->products, &p);
    p = *group;
    return code || !rest ? code : multiply_rest(l, &p, at, rest);
}

/* The group's own part; m, n or k may become 0. */
static void set_group(const struct loop *l, const struct slot *at,
                      struct qn_cublaslt_product *p)
{
    static const int roles[QN_LT_MATRICES] = {QN_ROLE_A, QN_ROLE_B, QN_ROLE_C,
                                              QN_ROLE_D};
    const struct qn_plan *plan = l->plan;
    const struct qn_geometry *operands = plan->operands;
    int64_t *const axes[] = {
        [QUERN_AXIS_M] = &p->m, [QUERN_AXIS_N] = &p->n, [QUERN_AXIS_K] = &p->k};

    if (plan->problem.ragged != QUERN_AXIS_NONE)
        *axes[plan->problem.ragged] =
            l->scaled && plan->problem.ragged == QUERN_AXIS_K
                ? qn_cublaslt_row(at->length)
                : at->length;
    for (int i = 0; i < QN_LT_MATRICES; i++)
        move_to(&operands[roles[i]], at->group, at->start, &p->matrices[i]);
    p->scales[QN_LT_A] = scales_of(&operands[QN_ROLE_A], l->values->a_sf, at);
    p->scales[QN_LT_B] = scales_of(&operands[QN_ROLE_B], l->values->b_sf, at);
    p->alpha = l->alpha + at->group * l->alpha_step;
    p->beta = l->beta + at->group * l->beta_step;
}

/* On the lane that has the least to do. */
static int multiply_group(struct loop *l, const struct slot *at)
{
    struct qn_cublaslt_product p = l->product;
    int lane;

    set_group(l, at, &p);
    if (p.m == 0 || p.n == 0 || (p.k && l->together))
        return QUERN_OK;
    lane = qn_cublaslt_lanes_next(&l->fork, at->length + 1);
    p.stream = l->fork.streams[lane];
    p.scratch = l->lanes + (size_t)lane * l->room.lane_bytes;
    if (!p.k)
        return multiply_nothing(l, &p);
    return l->gathers ? multiply_gathered(l, &p, at)
                      : qn_cublaslt_multiply(l->plan->products, &p);
}

/* All groups at once. */
static int multiply_batch(struct loop *l)
{
    l->product.batch = l->plan->problem.groups;
    l->product.alpha = l->alpha;
    l->product.beta = l->beta;
    return qn_cublaslt_multiply(l->plan->products, &l->product);
}

/* To the next group; columnwise tensors start theirs at multiples. */
static void advance(const struct loop *l, struct slot *at)
{
    const int64_t step =
        l->scaled && l->plan->problem.ragged == QUERN_AXIS_K ? BLOCK : 1;

    at->start += (at->length + step - 1) / step * step;
    at->tiles += (at->length + BLOCK - 1) / BLOCK;
    at->gathered += (at->length + QN_CUBLASLT_ROWS - 1) / QN_CUBLASLT_ROWS *
                    QN_CUBLASLT_ROWS;
    at->group++;
}

static int multiply_groups(struct loop *l, const int64_t *sizes)
{
    struct slot at = {0};
    int code = QUERN_OK;

    for (; !code && at.group < l->plan->problem.groups; advance(l, &at)) {
        at.length = sizes ? sizes[at.group] : 0;
        code = multiply_group(l, &at);
        if (code)
            qn_error_add("  of group %d", at.group);
    }
    return code;
}

/* ------------------------------------------------------------- in one call */

/* From `at` on, the next group that has something to multiply; 0: none has. */
static int find_product(const struct loop *l, const int64_t *sizes,
                        struct slot *at, struct qn_cublaslt_product *p)
{
    for (; at->group < l->plan->problem.groups; advance(l, at)) {
        at->length = sizes[at->group];
        *p = l->product;
        set_group(l, at, p);
        if (p->m && p->n && p->k)
            return 1;
    }
    return 0;
}

/* One of the arrays: see struct qn_cublaslt_arrays. */
static int put_array(const struct loop *l, const int64_t *sizes, int array,
                     struct qn_host_words *words)
{
    struct qn_cublaslt_product p;
    struct slot at = {0};
    int code = QUERN_OK;

    for (; !code && find_product(l, sizes, &at, &p); advance(l, &at)) {
        const struct qn_cublaslt_matrix *x = p.matrices;
        const int64_t axes[] = {p.m, p.n, p.k};
        const int64_t value = array < QN_LT_AXES ? (intptr_t)x[array].data
                              : array < QN_LT_STRIDES
                                  ? axes[array - QN_LT_AXES]
                                  : x[array - QN_LT_STRIDES].stride;

        code = qn_host_word_put(words, (int)(uint32_t)value);
        if (!code && array < QN_LT_AXES)
            code = qn_host_word_put(words, (int)(uint32_t)(value >> 32));
    }
    return code;
}

/* How many there are, their averages, and the addresses' common divisor. */
static void sum_up(const struct loop *l, const int64_t *sizes,
                   struct qn_cublaslt_product *all)
{
    uintptr_t bits[QN_LT_MATRICES] = {0};
    struct qn_cublaslt_product p;
    struct slot at = {0};
    int64_t m = 0, n = 0, k = 0, count = 0;

    for (; find_product(l, sizes, &at, &p); advance(l, &at), count++) {
        m += p.m, n += p.n, k += p.k;
        for (int i = 0; i < QN_LT_MATRICES; i++)
            bits[i] |= (uintptr_t)p.matrices[i].data;
    }
    all->arrays.count = (int)count;
    all->m = count ? (m + count - 1) / count : 0;
    all->n = count ? (n + count - 1) / count : 0;
    all->k = count ? (k + count - 1) / count : 0;
    for (int i = 0; i < QN_LT_MATRICES; i++)
        all->matrices[i].data = (void *)bits[i];
}

/* All that have something to multiply. */
static int multiply_together(struct loop *l, const int64_t *sizes)
{
    struct qn_cublaslt_product all = l->product;
    struct qn_host_words words;
    int code = QUERN_OK;

    all.alpha = l->alpha;
    all.beta = l->beta;
    all.arrays.at = l->workspace + l->room.arrays;
    sum_up(l, sizes, &all);
    if (!all.arrays.count)
        return QUERN_OK;
    qn_host_word_begin(&words, l->plan->driver, &l->plan->products->size_step,
                       all.arrays.at, all.stream);
    for (int i = 0; !code && i < QN_LT_ARRAYS; i++)
        code = put_array(l, sizes, i, &words);
    if (!code)
        code = qn_host_word_flush(&words);
    return code ? code : qn_cublaslt_multiply(l->plan->products, &all);
}

/* Can they be so in this run: one alpha and one beta, strides of 32 bits? */
static int may_group(const struct loop *l, const int64_t *sizes)
{
    for (int i = 0; i < QN_LT_MATRICES; i++)
        if (l->product.matrices[i].stride > INT32_MAX)
            return 0;
    return l->plan->products->grouped && sizes && !l->alpha_step &&
           !l->beta_step;
}

/* Group after group; where no axis is ragged, all at once if that will do. */
static int multiply_all(struct loop *l, const int64_t *sizes)
{
    struct qn_cublaslt_lanes *lanes = &l->plan->products->lanes;
    int code, joined;

    if (!sizes && !l->scaled && !l->alpha_step && !l->beta_step)
        return multiply_batch(l);
    l->together = may_group(l, sizes);
    code = l->together ? multiply_together(l, sizes) : QUERN_OK;
    if (code)
        return code;
    code = qn_cublaslt_lanes_fork(lanes, l->plan->problem.groups,
                                  l->product.stream, &l->fork);
    if (!code)
        code = multiply_groups(l, sizes);
    joined = qn_cublaslt_lanes_join(lanes, &l->fork);
    return code ? code : joined;
}

int qn_cublaslt_run(const struct qn_plan *plan, const struct qn_values *values,
                    const int64_t *sizes, struct cu_stream *stream)
{
    struct loop l;
    int code = QUERN_OK;

    if (sizes)
        code = qn_host_size_capture(plan->driver, plan->problem.sizes, stream);
    if (!code)
        code = start_loop(&l, plan, values, sizes, stream);
    return code ? code : multiply_all(&l, sizes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* queue_order.c: merged products are one sum in a fixed order, which a run over
   all their tokens at once tells. */
#include "host.h"

#include <stdio.h>

enum { M = 24, N = 16, MOST_GROUPS = 5, TOKENS = 2000 /* the plans' */ };

static void *zeros(size_t bytes)
{
    void *memory = aligned_alloc(64, bytes / 64 * 64 + 64);

    assert_non_null(memory);
    memset(memory, 0, bytes / 64 * 64 + 64);
    return memory;
}

/* Products of one weight, and the same tokens in one: group by group, those of
   the first product, then those of the second, and so on. */
struct stack {
    int count, groups;
    int32_t sizes[QUERN_MAX_MICROBATCHES][MOST_GROUPS], all[MOST_GROUPS];
    int64_t tokens[QUERN_MAX_MICROBATCHES], total;
    uint16_t *dy[QUERN_MAX_MICROBATCHES], *x[QUERN_MAX_MICROBATCHES], *all_dy,
        *all_x;
};

/* Rows of one product's group to where they are in the whole. */
static void copy_rows(uint16_t *to, const uint16_t *from, int64_t at,
                      int64_t row, int64_t rows, int64_t columns)
{
    memcpy(to + at * columns, from + row * columns,
           (size_t)(rows * columns) * 2);
}

static void stack_rows(struct stack *k)
{
    int64_t at = 0, row[QUERN_MAX_MICROBATCHES] = {0};

    for (int g = 0; g < k->groups; g++)
        for (int i = 0; i < k->count; i++) {
            const int32_t rows = k->sizes[i][g];

            copy_rows(k->all_dy, k->dy[i], at, row[i], rows, M);
            copy_rows(k->all_x, k->x[i], at, row[i], rows, N);
            at += rows;
            row[i] += rows;
            k->all[g] += rows;
        }
}

static struct stack make_stack(uint64_t *state, int count)
{
    struct stack k = {.count = count, .groups = MOST_GROUPS};

    for (int i = 0; i < count; i++) {
        for (int g = 0; g < k.groups; g++) {
            k.sizes[i][g] =
                (int32_t)(qt_random_below(state, 3) ? qt_random_below(state, 40)
                                                    : 0);
            k.tokens[i] += k.sizes[i][g];
        }
        k.total += k.tokens[i];
        k.dy[i] = zeros((size_t)k.tokens[i] * M * 2);
        k.x[i] = zeros((size_t)k.tokens[i] * N * 2);
        for (int64_t j = 0; j < k.tokens[i] * M; j++)
            k.dy[i][j] = qt_bf16(qt_draw(state, QT_NORMAL));
        for (int64_t j = 0; j < k.tokens[i] * N; j++)
            k.x[i][j] = qt_bf16(qt_draw(state, QT_NORMAL));
    }
    k.all_dy = zeros((size_t)k.total * M * 2);
    k.all_x = zeros((size_t)k.total * N * 2);
    stack_rows(&k);
    return k;
}

static void free_stack(struct stack *k)
{
    for (int i = 0; i < k->count; i++) {
        free(k->dy[i]);
        free(k->x[i]);
    }
    free(k->all_dy);
    free(k->all_x);
}

static struct qn_plan *typed_plan(int tokens, const char *more,
                                  struct qn_args *args)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_description need;
    struct qn_problem p;
    struct qn_plan *plan = NULL;
    char line[128];

    snprintf(line, sizeof line, "wgrad bf16 g=%d m=%d n=%d k=%d%s", MOST_GROUPS,
             M, N, tokens, more);
    if (qn_problem_parse(host_ctx, line, &p) ||
        qn_problem_describe(host_ctx, &p, &need) ||
        qn_plan(host_ctx, &p, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    *args = need.args;
    return plan;
}

static struct qn_plan *stack_plan(int tokens, const char *more,
                                  struct qn_args *args)
{
    char typed[64];

    snprintf(typed, sizeof typed, " d=f32%s", more);
    return typed_plan(tokens, typed, args);
}

static void set_tokens(struct qn_args *args, void *dy, void *x,
                       const int32_t *sizes, int64_t tokens)
{
    args->a.data = dy;
    args->b.data = x;
    args->a.first_dims = sizes;
    args->a.shape[0] = args->b.shape[0] = tokens;
}

/* `first` of the merged products overwrites, or all are added to D. */
static void expect_order(struct stack *k, const char *more, int overwrite)
{
    _Alignas(16) uint32_t workspace[64] = {0};
    struct qn_args args;
    struct qn_plan *add = stack_plan(TOKENS, " beta=1 microbatches=8", &args);
    struct qn_plan *first = stack_plan(TOKENS, more, &args);
    struct quern_queue *queue;
    float *d[2];

    assert_int_equal(
        quern_queue_create(host_ctx, QUERN_MAX_MICROBATCHES, &queue), 0);
    args.workspace = workspace;
    for (int i = 0; i < 2; i++) {
        d[i] = zeros(args.d.bytes);
        for (size_t j = 0; j < args.d.bytes / 4; j++)
            d[i][j] = overwrite ? 1e30f : (float)j * 0.37f;
    }
    args.d.data = d[0];
    for (int i = 0; i < k->count; i++) {
        set_tokens(&args, k->dy[i], k->x[i], k->sizes[i], k->tokens[i]);
        if (qn_queue_put(queue, i ? add : first, &args, 0))
            fail_msg("%s", quern_errmsg());
    }
    assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
    args.d.data = d[1];
    set_tokens(&args, k->all_dy, k->all_x, k->all, k->total);
    assert_int_equal(qn_run(first, &args, NULL), QUERN_OK);
    assert_memory_equal(d[0], d[1], args.d.bytes);
    assert_int_equal(workspace[0], 0);
    quern_queue_destroy(queue);
    qn_plan_free(add);
    qn_plan_free(first);
    free(d[0]);
    free(d[1]);
}

/* Merged products are one sum over the tokens of all, in the order of the
   puts. */
TEST(test_queue_order_of_sums)
{
    uint64_t seed = 7;

    for (int count = 1; count <= QUERN_MAX_MICROBATCHES; count++) {
        struct stack k = make_stack(&seed, count);

        expect_order(&k, " beta=1 microbatches=8", 0);
        expect_order(&k, " microbatches=8", 1);
        free_stack(&k);
    }
}

/* ------------------------------------------------------------ what is apart */

struct waiting {
    const struct qn_plan *plan;
    struct qn_args args;
};

/* Products that no launch may merge leave the bits of single runs. */
static void expect_apart(const char *what, const struct waiting *w, int count)
{
    const size_t bytes = w->args.d.bytes;
    struct quern_queue *queue;
    float *d[2];

    assert_int_equal(quern_queue_create(host_ctx, count, &queue), 0);
    for (int i = 0; i < 2; i++) {
        d[i] = zeros(bytes);
        for (size_t j = 0; j < bytes / 4; j++)
            d[i][j] = (float)j * 0.37f;
    }
    for (int i = 0; i < count; i++) {
        struct qn_args args = w[i].args;

        args.d.data = d[0];
        args.c.data = args.c.ndim ? d[0] : NULL;
        if (qn_queue_put(queue, w[i].plan, &args, 0))
            fail_msg("%s: %s", what, quern_errmsg());
        args.d.data = d[1];
        args.c.data = args.c.ndim ? d[1] : NULL;
        assert_int_equal(qn_run(w[i].plan, &args, NULL), QUERN_OK);
    }
    assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
    if (memcmp(d[0], d[1], bytes))
        fail_msg("%s: other bits than those of single runs", what);
    quern_queue_destroy(queue);
    free(d[0]);
    free(d[1]);
}

/* Flags, factors, distances, tokens and betas that differ. */
TEST(test_queue_merges_alike)
{
    static const float factors[MOST_GROUPS] = {2, 3, 5, 7, 11}, half = 0.5f;
    static const int set = 7;
    _Alignas(16) uint32_t workspace[64] = {0};
    uint64_t seed = 21;
    struct stack k = make_stack(&seed, 3);
    struct qn_args args, scaled, any, less;
    struct qn_plan *add = stack_plan(TOKENS, " beta=1 microbatches=8", &args);
    struct qn_plan *alpha =
        stack_plan(TOKENS, " beta=1 alpha=any microbatches=8", &scaled);
    struct qn_plan *beta = stack_plan(TOKENS, " beta=any microbatches=8", &any);
    struct qn_plan *few =
        stack_plan((int)k.tokens[0], " beta=1 microbatches=8", &less);
    const int64_t pitch = M + 8;
    uint16_t *apart = zeros((size_t)(k.tokens[1] * pitch) * 2);
    struct waiting w[3], x[3], y[3];

    for (int i = 0; i < 3; i++) {
        w[i] = (struct waiting){add, args};
        x[i] = (struct waiting){alpha, scaled};
        y[i] = (struct waiting){i == 1 ? beta : add, i == 1 ? any : args};
        for (int j = 0; j < 3; j++) {
            struct qn_args *a = j == 0   ? &w[i].args
                                : j == 1 ? &x[i].args
                                         : &y[i].args;

            a->workspace = workspace;
            set_tokens(a, k.dy[i], k.x[i], k.sizes[i], k.tokens[i]);
        }
        x[i].args.alpha = factors;
        x[i].args.scalars = MOST_GROUPS;
    }
    w[0].args.noop = &set;
    expect_apart("noop of the first", w, 2);
    w[0].args.noop = NULL;
    w[1].args.noop = &set;
    expect_apart("noop of the second", w, 2);
    w[1].args.noop = NULL;
    x[1].args.alpha = factors + 2;
    x[1].args.scalars = x[0].args.scalars = 1;
    expect_apart("alpha", x, 2);
    x[1].args.alpha = factors;
    x[1].args.scalars = MOST_GROUPS;
    expect_apart("scalars", x, 2);
    for (int64_t row = 0; row < k.tokens[1]; row++)
        memcpy(apart + row * pitch, k.dy[1] + row * M, M * 2);
    w[1].args.a.data = apart;
    w[1].args.a.stride = pitch;
    w[1].args.a.bytes = (size_t)(k.tokens[1] * pitch) * 2;
    expect_apart("rows of a", w, 2);
    w[0].plan = few;
    w[1].args = w[2].args;
    expect_apart("tokens", w, 2);
    y[1].args.beta = &half;
    y[1].args.scalars = 1;
    expect_apart("beta", y, 3);
    qn_plan_free(add);
    qn_plan_free(alpha);
    qn_plan_free(beta);
    qn_plan_free(few);
    free(apart);
    free_stack(&k);
}

/* Products of a layer merge only as far as no product of another layer, which
   does not just add, was put between them. */
TEST(test_queue_keeps_order_of_layers)
{
    _Alignas(16) uint32_t workspace[64] = {0};
    uint64_t seed = 31;
    struct stack k = make_stack(&seed, 3);
    struct qn_args args, any;
    struct qn_plan *add = stack_plan(TOKENS, " beta=1 microbatches=8", &args);
    struct qn_plan *beta = stack_plan(TOKENS, " beta=any", &any);
    const float half = 0.5f;
    struct quern_queue *queue;
    float *d[2] = {zeros(args.d.bytes), zeros(args.d.bytes)};

    any.beta = &half;
    any.scalars = 1;
    assert_int_equal(quern_queue_create(host_ctx, 3, &queue), 0);
    for (int i = 0; i < 3; i++) {
        struct qn_plan *plan = i == 1 ? beta : add;
        struct qn_args *a = i == 1 ? &any : &args;

        a->workspace = workspace;
        set_tokens(a, k.dy[i], k.x[i], k.sizes[i], k.tokens[i]);
        a->d.data = d[1];
        a->c.data = a->c.ndim ? d[1] : NULL;
        assert_int_equal(qn_run(plan, a, NULL), QUERN_OK);
        a->d.data = d[0];
        a->c.data = a->c.ndim ? d[0] : NULL;
        assert_int_equal(qn_queue_put(queue, plan, a, i == 1), QUERN_OK);
    }
    assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_EINVAL);
    assert_non_null(strstr(quern_errmsg(), "waits for layer 1"));
    assert_int_equal(quern_queue_count(queue, QUERN_ALL_LAYERS), 2);
    assert_int_equal(quern_queue_flush(queue, 1, 0, NULL), QUERN_OK);
    assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
    assert_memory_equal(d[0], d[1], args.d.bytes);
    quern_queue_destroy(queue);
    qn_plan_free(add);
    qn_plan_free(beta);
    free(d[0]);
    free(d[1]);
    free_stack(&k);
}

/* Matrices for which products wait stay of their type. */
TEST(test_queue_keeps_types)
{
    _Alignas(16) uint32_t workspace[64] = {0};
    uint64_t seed = 3;
    struct stack k = make_stack(&seed, 1);
    struct qn_args args, narrow;
    struct qn_plan *add = stack_plan(TOKENS, " beta=1", &args);
    struct qn_plan *other = typed_plan(TOKENS, " d=bf16 beta=1", &narrow);
    struct quern_queue *queue;
    void *d = zeros(args.d.bytes);

    assert_int_equal(quern_queue_create(host_ctx, 2, &queue), 0);
    set_tokens(&args, k.dy[0], k.x[0], k.sizes[0], k.tokens[0]);
    set_tokens(&narrow, k.dy[0], k.x[0], k.sizes[0], k.tokens[0]);
    args.workspace = narrow.workspace = workspace;
    args.d.data = narrow.d.data = d;
    assert_int_equal(qn_queue_put(queue, add, &args, 0), QUERN_OK);
    assert_int_equal(qn_queue_put(queue, other, &narrow, 0), QUERN_EINVAL);
    assert_non_null(
        strstr(quern_errmsg(),
               "d.type is bf16: pending products for these matrices have f32"));
    quern_queue_destroy(queue);
    qn_plan_free(add);
    qn_plan_free(other);
    free(d);
    free_stack(&k);
}

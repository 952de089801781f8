/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c: a product's result as copies: to the byte those that quantize makes
   of the same result; what a problem may not ask for. */
#include "host.h"

#include "base/types.h"
#include "choose/describe_all.h"
#include "problem/geometry.h"
#include "problem/scale.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"
#include "internal.h"

#include <stdio.h>

static const struct qn_plan_options on_host = {.backend = QUERN_BACKEND_HOST};

/* One problem: operands, and results with quantized tensors and without. */
struct pair {
    const char *line;
    const int64_t *sizes;
    struct qn_args args; /* of the problem with copies */
};

/* Delayed scaling that saturates nothing, and any seed. */
static const float factors[2] = {4, 0.25f};
static const uint64_t seed[2] = {11, 64};

static void *memory(size_t bytes, int value)
{
    const size_t whole = (bytes + 512) / 256 * 256; /* 256 more at least */
    void *data = aligned_alloc(256, whole);

    assert_non_null(data);
    return memset(data, value, whole);
}

static void expect_ok(const struct pair *x, int code)
{
    if (code)
        fail_msg("%s: %s", x->line, quern_errmsg());
}

/* Numbers of random bits would be NaN now and then: these are small. */
static float *draw(int64_t count, uint64_t *state)
{
    float *x = memory((size_t)count * sizeof *x, 0);

    for (int64_t i = 0; i < count; i++)
        x[i] = qt_draw(state, QT_NORMAL);
    return x;
}

/* A quantized tensor and its scales, full of `value`. */
static void give(struct qn_tensor *t, int value)
{
    t->data = memory(t->bytes, value);
    t->sf = memory(t->sf_bytes, value);
    t->global = t->global_bytes ? memory(t->global_bytes, value) : NULL;
}

static void free_copy(struct qn_tensor *t)
{
    free(t->data);
    free(t->sf);
    free(t->global);
}

/* Arguments of delayed scaling and stochastic rounding; the history is new. */
static void give_cast(int slots, int random, float **scale, float **history,
                      const uint64_t **seeds)
{
    *scale = slots ? memory(sizeof factors, 0) : NULL;
    *history = slots ? memory((size_t)slots * sizeof **history, 0) : NULL;
    *seeds = random ? seed : NULL;
    if (slots)
        memcpy(*scale, factors, sizeof factors);
}

/* Drawn values, quantized as operand `role` of the product. */
static void make_operand(struct pair *x, const struct qn_problem *p,
                         const struct qn_recipe *recipe, int role,
                         struct qn_tensor *to)
{
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    uint64_t state = 5 + (uint64_t)role;
    float *numbers;

    assert_non_null(qn_scale_source(p, recipe, role, &q));
    q.type = QUERN_F32;
    numbers = draw((q.of == QN_W ? q.groups : 1) * q.m * q.k, &state);
    expect_ok(x, qn_quantize_needs(host_ctx, &q, &need));
    expect_ok(x, qn_quantize_plan(host_ctx, &q, &on_host, &plan));
    give(to, 0);
    need.args.in.data = numbers;
    *(q.copies == QUERN_ROWWISE ? &need.args.row : &need.args.column) = *to;
    give_cast(need.history, need.random, &need.args.scale, &need.args.history,
              &need.args.random);
    need.args.first_dims = q.of == QN_W ? NULL : x->sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.workspace = memory(need.workspace_bytes, 0);
    expect_ok(x, qn_quantize_run(plan, &need.args, NULL));
    qn_quantize_plan_free(plan);
    free(need.args.workspace);
    free(need.args.scale);
    free(need.args.history);
    free(numbers);
}

/* Twice, so that what one run leaves is what the next one finds. */
static void multiply(struct pair *x, const struct qn_problem *p,
                     struct qn_args *args)
{
    struct qn_plan *plan;
    struct quern_plan_info info;

    expect_ok(x, qn_plan(host_ctx, p, &on_host, &plan));
    qn_plan_info(plan, &info);
    args->workspace = memory(info.workspace_bytes, 0);
    for (int i = 0; i < 2; i++) {
        expect_ok(x, qn_run(plan, args, NULL));
        expect_ok(x, qn_check(plan, args, NULL));
    }
    qn_plan_free(plan);
    free(args->workspace);
}

/* Quantize D of the problem without copies. */
static void quantize(struct pair *x, const struct qn_problem *p,
                     const struct qn_tensor *d, struct qn_quantize_args *out)
{
    struct qn_quantize_description need;
    struct qn_quantization q = {.of = p->op == QUERN_DGRAD ? QN_DY : QN_X,
                                .type = p->d_type};
    struct qn_quantize_plan *plan;

    strcpy(q.recipe, p->recipe);
    q.copies = p->copies;
    q.groups = p->groups;
    q.m = p->m;
    q.k = d->shape[1];
    expect_ok(x, qn_quantize_needs(host_ctx, &q, &need));
    expect_ok(x, qn_quantize_plan(host_ctx, &q, &on_host, &plan));
    need.args.in.data = d->data;
    give(&need.args.row, QT_POISON);
    if (p->copies & QUERN_COLUMNWISE)
        give(&need.args.column, QT_POISON);
    give_cast(need.history, need.random, &need.args.scale, &need.args.history,
              &need.args.random);
    need.args.first_dims = x->sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.workspace = memory(need.workspace_bytes, 0);
    expect_ok(x, qn_quantize_run(plan, &need.args, NULL));
    qn_quantize_plan_free(plan);
    free(need.args.workspace);
    *out = need.args;
}

/* Shape, scales and bytes, what belongs to no group included. */
static void expect_same(const struct pair *x, const struct qn_tensor *one,
                        const struct qn_tensor *two, const char *what)
{
    assert_int_equal(one->type, two->type);
    assert_int_equal(one->shape[1], two->shape[1]);
    assert_int_equal(one->bytes, two->bytes);
    assert_int_equal(one->sf_bytes, two->sf_bytes);
    if (memcmp(one->data, two->data, one->bytes) != 0)
        fail_msg("%s: the %s copy differs", x->line, what);
    if (memcmp(one->sf, two->sf, one->sf_bytes) != 0)
        fail_msg("%s: scales of the %s copy differ", x->line, what);
    assert_int_equal(one->global_bytes, two->global_bytes);
    if (one->global && memcmp(one->global, two->global, one->global_bytes) != 0)
        fail_msg("%s: global scales of the %s copy differ", x->line, what);
}

/* Inputs of both runs. */
static void make_inputs(struct pair *x, const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    static const float alpha = 0.75f;
    struct qn_args *args = &x->args;
    uint64_t state = 9;

    make_operand(x, p, recipe, QN_ROLE_A, &args->a);
    make_operand(x, p, recipe, QN_ROLE_B, &args->b);
    args->bias = p->bias ? draw(p->groups * p->n, &state) : NULL;
    args->probability = p->probability ? draw(p->m, &state) : NULL;
    args->alpha = p->alpha ? &alpha : NULL;
    args->a.first_dims = x->sizes;
    args->a.sizes_type = QUERN_I64;
    if (!args->p.ndim)
        return;
    args->p.data = memory(args->p.bytes, 0);
    for (int64_t i = 0; i < args->p.shape[0] * args->p.shape[1]; i++)
        qt_store(args->p.data, args->p.type, i, qt_draw(&state, QT_NORMAL));
}

static void free_inputs(struct qn_args *args)
{
    free_copy(&args->a);
    free_copy(&args->b);
    free(args->p.data);
    free((void *)(uintptr_t)args->bias);
    free((void *)(uintptr_t)args->probability);
}

/* In two steps: values, and a cast of these. */
static void make_apart(struct pair *x, const struct qn_problem *p,
                       struct qn_quantize_args *out)
{
    struct qn_problem plain = *p;
    struct qn_args args = x->args;
    struct qn_description need;

    plain.copies = 0;
    expect_ok(x, qn_problem_describe(host_ctx, &plain, &need));
    args.d = need.args.d;
    memset(&args.t, 0, sizeof args.t);
    args.d.data = memory(args.d.bytes, QT_POISON);
    multiply(x, &plain, &args);
    quantize(x, p, &args.d, out);
    free(args.d.data);
}

static void try_line(const char *line, const int64_t *sizes)
{
    struct pair *x = memory(sizeof *x, 0);
    const struct qn_recipe *recipe;
    struct qn_problem p;
    struct qn_description need;
    struct qn_quantize_args two;
    struct qn_args args;

    x->line = line;
    x->sizes = sizes;
    expect_ok(x, qn_problem_parse(host_ctx, line, &p));
    expect_ok(x, qn_describe(host_ctx, &p, &need, &recipe));
    x->args = need.args;
    make_inputs(x, &p, recipe);
    make_apart(x, &p, &two);

    args = x->args;
    give(&args.d, QT_POISON);
    if (p.copies & QUERN_COLUMNWISE)
        give(&args.t, QT_POISON);
    give_cast(need.history, need.random, &args.scale, &args.history,
              &args.random);
    multiply(x, &p, &args);
    expect_same(x, &args.d, &two.row, "row");
    if (p.copies & QUERN_COLUMNWISE)
        expect_same(x, &args.t, &two.column, "column");
    if (need.history && memcmp(args.history, two.history,
                               (size_t)need.history * sizeof *two.history) != 0)
        fail_msg("%s: the history differs", line);
    free_copy(&args.d);
    free_copy(&args.t);
    free_copy(&two.row);
    free_copy(&two.column);
    free(args.scale);
    free(args.history);
    free(two.scale);
    free(two.history);
    free_inputs(&x->args);
    free(x);
}

/* Scaled x, w and dy. */
static int is_whole(const struct qn_recipe *recipe)
{
    return recipe->scaling[QN_X].type != QUERN_TYPE_NONE &&
           recipe->scaling[QN_W].type != QUERN_TYPE_NONE &&
           recipe->scaling[QN_DY].type != QUERN_TYPE_NONE;
}

/* Every recipe, whether a kernel makes its copies or a cast after the
   product: every activation, types of D, sides that fill no block, groups
   that fill no tile. */
TEST(test_result_copies)
{
    static const int64_t sizes[] = {130, 0, 1, 128, 41};
    static const int columns[] = {256, 48, 272, 528};
    const struct qn_recipe *recipe = qn_registry_builtin.recipes;
    char line[256];
    int done = 0;

    for (int r = 0; r < qn_registry_builtin.nrecipes; r++, recipe++) {
        if (!is_whole(recipe))
            continue;
        for (int i = 1; i <= QUERN_ACTIVATION_COUNT; i++, done++) {
            const int n = r + i, more = i == QUERN_ACTIVATION_COUNT;

            snprintf(line, sizeof line,
                     "fprop %s g=5 m=303 n=%d k=%d d=%s activation=%s%s%s "
                     "copies=%s",
                     recipe->name, columns[n % 4], n % 2 ? 160 : 64,
                     n % 5 == 4   ? "f32"
                     : n % 3 == 2 ? "f16"
                                  : "bf16",
                     more ? "swiglu bias=1" : qn_activation_name(i),
                     n % 3 ? " prob=1" : "", n % 2 ? " interleave=8" : "",
                     n % 4 ? "both" : "rowwise");
            try_line(line, sizes);
        }
        snprintf(line, sizeof line,
                 "fprop %s g=5 m=303 n=144 k=64 bias=1 copies=both",
                 recipe->name);
        try_line(line, sizes);
    }
    assert_true(done > 8 * QUERN_ACTIVATION_COUNT);
}

/* The result itself, of fprop an x and of dgrad a dy; and dgrad that goes back
   through an activation. */
TEST(test_result_of_gradients)
{
    static const char *const lines[] = {
        "fprop %s g=5 m=303 n=152 k=64 alpha=any copies=both",
        "fprop %s g=5 m=303 n=40 k=160 d=f32 copies=rowwise",
        "dgrad %s g=5 m=303 n=152 k=64 copies=both",
        "dgrad %s g=5 m=303 n=136 k=64 d=f16 alpha=any copies=both",
        "dgrad %s g=5 m=303 n=48 k=96 activation=geglu prob=1 copies=both",
        "dgrad %s g=5 m=303 n=40 k=64 activation=squared_relu copies=rowwise"};
    static const int64_t sizes[] = {130, 0, 1, 128, 41};
    const struct qn_recipe *recipe = qn_registry_builtin.recipes;
    char line[256];
    int done = 0;

    for (int r = 0; r < qn_registry_builtin.nrecipes; r++, recipe++)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            if (!is_whole(recipe))
                continue;
            snprintf(line, sizeof line, lines[i], recipe->name);
            try_line(line, sizes);
            done++;
        }
    assert_true(done > 8 * 6);
}

/* ------------------------------------------------------ rows of a run */

/* All that a run wrote, and 256 bytes after each part. */
static int is_poison(const struct qn_tensor *t, size_t from)
{
    const unsigned char *data = t->data;

    for (size_t i = from; i < t->bytes + 256; i++)
        if (data[i] != QT_POISON)
            return 0;
    return 1;
}

/* Operands of a problem, and a plan for more rows than `rows`. */
struct run {
    struct pair *x;
    struct qn_plan *plan;
    struct qn_args args;
};

static struct run begin_run(const char *line, const int64_t *sizes,
                            int64_t planned)
{
    struct run r = {.x = memory(sizeof *r.x, 0)};
    const struct qn_recipe *recipe;
    struct qn_description need;
    struct quern_plan_info info;
    struct qn_problem p, large;

    r.x->line = line;
    r.x->sizes = sizes;
    expect_ok(r.x, qn_problem_parse(host_ctx, line, &p));
    expect_ok(r.x, qn_describe(host_ctx, &p, &need, &recipe));
    r.x->args = need.args;
    make_inputs(r.x, &p, recipe);
    r.args = r.x->args;
    give(&r.args.d, QT_POISON);
    give(&r.args.t, QT_POISON);
    give_cast(need.history, need.random, &r.args.scale, &r.args.history,
              &r.args.random);
    large = p;
    large.m = planned;
    expect_ok(r.x, qn_plan(host_ctx, &large, &on_host, &r.plan));
    qn_plan_info(r.plan, &info);
    r.args.workspace = memory(info.workspace_bytes, 0);
    return r;
}

static void end_run(struct run *r)
{
    qn_plan_free(r->plan);
    free(r->args.workspace);
    free(r->args.scale);
    free(r->args.history);
    free_copy(&r->args.d);
    free_copy(&r->args.t);
    free_inputs(&r->x->args);
    free(r->x);
}

static const char *const behind[] = {
    "fprop fp8_row g=5 m=303 n=72 k=64 copies=both",
    "fprop fp8_tensor_delayed g=5 m=303 n=72 k=64 bias=1 copies=both",
    "fprop nvfp4 g=5 m=303 n=96 k=64 activation=swiglu prob=1 copies=both",
    "dgrad nvfp4 g=5 m=303 n=96 k=64 copies=both",
    ("dgrad mxfp8 g=5 m=303 n=48 k=64 activation=geglu dequantize=pass "
     "copies=both")};

/* A flag skips both launches, an invalid size is reported and stays inside,
   and fewer rows than planned are what a plan for just these makes. */
TEST(test_result_rows)
{
    static const int64_t sizes[] = {130, 0, 1, 128, 41};
    static const int64_t bad[] = {130, -1, 1, INT64_MAX, 41};
    static const int noop = 1;

    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        struct run wrong = begin_run(behind[i], sizes, 303);
        struct run one = begin_run(behind[i], sizes, 303);
        struct run more = begin_run(behind[i], sizes, 2000);

        wrong.args.noop = &noop;
        expect_ok(wrong.x, qn_run(wrong.plan, &wrong.args, NULL));
        assert_true(is_poison(&wrong.args.d, 0) && is_poison(&wrong.args.t, 0));
        wrong.args.noop = NULL;
        wrong.args.a.first_dims = bad;
        expect_ok(wrong.x, qn_run(wrong.plan, &wrong.args, NULL));
        assert_int_equal(qn_check(wrong.plan, &wrong.args, NULL), QUERN_ESIZES);
        assert_true(is_poison(&wrong.args.d, wrong.args.d.bytes) &&
                    is_poison(&wrong.args.t, wrong.args.t.bytes));
        expect_ok(one.x, qn_run(one.plan, &one.args, NULL));
        expect_ok(one.x, qn_check(one.plan, &one.args, NULL));
        expect_ok(more.x, qn_run(more.plan, &more.args, NULL));
        expect_ok(more.x, qn_check(more.plan, &more.args, NULL));
        expect_same(more.x, &one.args.d, &more.args.d, "row");
        expect_same(more.x, &one.args.t, &more.args.t, "column");
        end_run(&wrong);
        end_run(&one);
        end_run(&more);
    }
}

/* Invalid problems, and why an MLP takes a cast. */
TEST(test_result_refusals)
{
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"fprop fp8_block g=1 m=8 n=256 k=64 beta=any copies=both",
         "nothing is added to them, beta=0 is expected"},
        {"fprop fp8_block g=1 m=8 n=256 k=64 outside=zero copies=both",
         "tensors that belong to no group are not zeroed"},
        {"wgrad fp8_block g=1 m=8 n=256 k=64 copies=both",
         "only fprop and dgrad with ragged=m support them"},
        {"fprop bf16 g=1 m=8 n=256 k=64 ragged=n copies=both", "with ragged=m"},
        {"dgrad bf16 g=1 m=8 n=256 k=64 copies=both",
         "recipe bf16: the recipe keeps dy as it is"},
        {"fprop fp8_row g=1 m=8 n=256 k=64 dequantize=pass copies=both",
         "are factors of sums, not of values"},
        {"fprop fp8_block g=1 m=8 n=256 k=64 bias=1 copies=columnwise",
         "rowwise or both is expected"},
        {"fprop bf16 g=1 m=8 n=256 k=64 bias=1 copies=both",
         "recipe bf16: the recipe keeps x as it is"},
        {"dgrad fp8_block g=1 m=8 n=256 k=64 bias=1 copies=rowwise",
         "bias needs fprop, an activation fprop or dgrad"},
        {"fprop fp8_block g=1 m=8 n=256 k=64 bias=1 copies=ro",
         "none, rowwise, columnwise, both is expected"},
    };
    struct qn_problem p;
    struct qn_mlp mlp;
    char text[256], *why = NULL;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (qn_problem_parse(host_ctx, rows[i].line, &p) != QUERN_EINVAL)
            fail_msg("%s: not refused", rows[i].line);
        if (!strstr(quern_errmsg(), rows[i].says))
            fail_msg("%s: '%s' lacks '%s'", rows[i].line, quern_errmsg(),
                     rows[i].says);
    }
    assert_int_equal(
        qn_problem_parse(host_ctx,
                         "fprop fp8_block g=1 m=8 n=256 k=64 d=bf16 bias=1 "
                         "activation=swiglu saved=1 copies=both",
                         &p),
        QUERN_OK);
    qn_problem_print(&p, text, sizeof text);
    assert_non_null(strstr(text, " saved=1 copies=both"));
    assert_int_equal(
        qn_mlp_parse(host_ctx, "mlp fp8_row g=2 m=9 hidden=32 ffn=16", &mlp),
        QUERN_OK);
    assert_int_equal(qn_mlp_why(host_ctx, &mlp, &on_host, &why), QUERN_OK);
    assert_non_null(strstr(why, "known only when all of it is"));
    quern_free(why);
}

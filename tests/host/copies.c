/*
** copies.c: a product's result as copies: to the byte those that quantize makes
** of the same result; what a problem may not ask for.
*/
#include "host.h"

#include "registry.h"
#include "types.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct quern_plan_options on_host = {.backend =
                                                      QUERN_BACKEND_HOST};

/* Of one problem: its operands, and the results with copies and without. */
struct pair {
    const char *line;
    const int64_t *sizes;
    struct quern_args args; /* of the problem with copies */
    unsigned char workspace[4096] __attribute__((aligned(256)));
};

static void *memory(size_t bytes, int value)
{
    void *data = aligned_alloc(256, (bytes + 512) / 256 * 256);

    assert_non_null(data);
    return memset(data, value, bytes);
}

static void expect_ok(const struct pair *x, int code)
{
    if (code)
        fail_msg("%s: %s", x->line, quern_errmsg(host_ctx));
}

/* Numbers of random bits would be NaN now and then: these are small. */
static float *draw(int64_t count, uint64_t *state)
{
    float *x = memory((size_t)count * sizeof *x, 0);

    for (int64_t i = 0; i < count; i++)
        x[i] = qt_draw(state, QT_NORMAL);
    return x;
}

/* A copy of drawn numbers, quantized for A or B of the product. */
static void make_operand(struct pair *x, int of, int64_t m, int64_t k,
                         struct quern_tensor *to, const char *recipe,
                         int groups)
{
    struct quern_quantize_description need;
    struct quern_quantization q = {.of = of, .type = QUERN_F32, .m = m, .k = k};
    struct quern_quantize_plan *plan;
    uint64_t state = 5 + (uint64_t)of;
    float *numbers = draw((of == QUERN_W ? groups : 1) * m * k, &state);

    strcpy(q.recipe, recipe);
    q.copies = QUERN_ROW;
    q.groups = groups;
    expect_ok(x, quern_quantize_describe(host_ctx, &q, &need));
    expect_ok(x, quern_quantize_plan(host_ctx, &q, &on_host, &plan));
    need.args.in.data = numbers;
    need.args.row.data = to->data = memory(to->bytes, 0);
    need.args.row.sf = to->sf = memory(to->sf_bytes, 0);
    need.args.first_dims = of == QUERN_W ? NULL : x->sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.workspace = memory(need.workspace_bytes, 0);
    expect_ok(x, quern_quantize_run(plan, &need.args, NULL));
    quern_quantize_plan_free(plan);
    free(need.args.workspace);
    free(numbers);
}

static void multiply(struct pair *x, const struct quern_problem *p,
                     struct quern_args *args)
{
    struct quern_plan *plan;

    args->workspace = x->workspace;
    expect_ok(x, quern_plan(host_ctx, p, &on_host, &plan));
    expect_ok(x, quern_run(plan, args, NULL));
    expect_ok(x, quern_check(plan, args, NULL));
    quern_plan_free(plan);
}

/* Quantize D of the problem without copies. */
static void quantize(struct pair *x, const struct quern_problem *p,
                     const struct quern_tensor *d,
                     struct quern_quantize_args *out)
{
    struct quern_quantize_description need;
    struct quern_quantization q = {.of = QUERN_X, .type = p->d_type};
    struct quern_quantize_plan *plan;

    strcpy(q.recipe, p->recipe);
    q.copies = p->copies;
    q.groups = p->groups;
    q.m = p->m;
    q.k = d->shape[1];
    expect_ok(x, quern_quantize_describe(host_ctx, &q, &need));
    expect_ok(x, quern_quantize_plan(host_ctx, &q, &on_host, &plan));
    need.args.in.data = d->data;
    need.args.row.data = memory(need.args.row.bytes, QT_POISON);
    need.args.row.sf = memory(need.args.row.sf_bytes, QT_POISON);
    if (p->copies & QUERN_COLUMN) {
        need.args.column.data = memory(need.args.column.bytes, QT_POISON);
        need.args.column.sf = memory(need.args.column.sf_bytes, QT_POISON);
    }
    need.args.first_dims = x->sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.workspace = memory(need.workspace_bytes, 0);
    expect_ok(x, quern_quantize_run(plan, &need.args, NULL));
    quern_quantize_plan_free(plan);
    free(need.args.workspace);
    *out = need.args;
}

/* Shape, scales and bytes, what belongs to no group included. */
static void expect_same(const struct pair *x, const struct quern_tensor *one,
                        const struct quern_tensor *two, const char *what)
{
    assert_int_equal(one->type, two->type);
    assert_int_equal(one->shape[1], two->shape[1]);
    assert_int_equal(one->bytes, two->bytes);
    assert_int_equal(one->sf_bytes, two->sf_bytes);
    if (memcmp(one->data, two->data, one->bytes) != 0)
        fail_msg("%s: the %s copy differs", x->line, what);
    if (memcmp(one->sf, two->sf, one->sf_bytes) != 0)
        fail_msg("%s: scales of the %s copy differ", x->line, what);
}

static void free_copy(struct quern_tensor *t)
{
    free(t->data);
    free(t->sf);
}

static void try_line(const char *line, const int64_t *sizes)
{
    struct pair *x = memory(sizeof *x, 0);
    struct quern_problem p;
    struct quern_description need;
    struct quern_quantize_args two;
    uint64_t state = 9;
    float *bias, *probability;
    struct quern_args args;

    x->line = line;
    x->sizes = sizes;
    expect_ok(x, quern_problem_parse(host_ctx, line, &p));
    expect_ok(x, quern_describe(host_ctx, &p, &need));
    args = need.args;
    make_operand(x, QUERN_X, p.m, p.k, &args.a, p.recipe, p.groups);
    make_operand(x, QUERN_W, p.n, p.k, &args.b, p.recipe, p.groups);
    bias = draw(p.groups * p.n, &state);
    probability = draw(p.m, &state);
    args.a.first_dims = sizes;
    args.a.sizes_type = QUERN_I64;
    args.bias = p.bias ? bias : NULL;
    args.probability = p.probability ? probability : NULL;
    x->args = args;
    args.d.data = memory(args.d.bytes, QT_POISON);
    args.d.sf = memory(args.d.sf_bytes, QT_POISON);
    if (p.copies & QUERN_COLUMN) {
        args.t.data = memory(args.t.bytes, QT_POISON);
        args.t.sf = memory(args.t.sf_bytes, QT_POISON);
    }
    multiply(x, &p, &args);

    {
        struct quern_problem plain = p;
        struct quern_args first = x->args;

        plain.copies = 0;
        expect_ok(x, quern_describe(host_ctx, &plain, &need));
        first.d = need.args.d;
        memset(&first.t, 0, sizeof first.t);
        first.d.data = memory(first.d.bytes, QT_POISON);
        multiply(x, &plain, &first);
        quantize(x, &p, &first.d, &two);
        free(first.d.data);
    }
    expect_same(x, &args.d, &two.row, "row");
    if (p.copies & QUERN_COLUMN)
        expect_same(x, &args.t, &two.column, "column");
    free_copy(&args.d);
    free_copy(&args.t);
    free_copy(&two.row);
    free_copy(&two.column);
    free_copy(&args.a);
    free_copy(&args.b);
    free(bias);
    free(probability);
    free(x);
}

/* Every recipe whose blocks end in a tile, every activation, types of D, sides
   that fill no block, groups that fill no tile. */
void test_result_copies(void **state)
{
    static const char *const activations[] = {
        "swiglu", "clamped_swiglu", "situ",         "geglu",
        "reglu",  "squared_relu",   "swiglu bias=1"};
    static const int64_t sizes[] = {130, 0, 1, 128, 41};
    static const int columns[] = {256, 48, 272, 528};
    const struct qn_recipe *recipe = qn_registry_builtin.recipes;
    char line[256];
    int done = 0;

    (void)state;
    for (int r = 0; r < qn_registry_builtin.nrecipes; r++, recipe++) {
        const struct qn_scaling *s = &recipe->scaling[QUERN_X];

        if (s->type == QUERN_TYPE_NONE || s->span != QN_SPAN_BLOCK ||
            s->global || s->stochastic ||
            recipe->scaling[QUERN_W].type == QUERN_TYPE_NONE)
            continue;
        for (int i = 0; i < 7; i++, done++) {
            const int n = r + i;

            snprintf(line, sizeof line,
                     "fprop %s g=5 m=303 n=%d k=%d d=%s activation=%s%s%s "
                     "copies=%s",
                     recipe->name, columns[n % 4], n % 2 ? 160 : 64,
                     n % 5 == 4   ? "f32"
                     : n % 3 == 2 ? "f16"
                                  : "bf16",
                     activations[i], n % 3 ? " prob=1" : "",
                     n % 2 ? " interleave=8" : "", n % 4 ? "both" : "row");
            try_line(line, sizes);
        }
        snprintf(line, sizeof line,
                 "fprop %s g=5 m=303 n=144 k=64 bias=1 copies=both",
                 recipe->name);
        try_line(line, sizes);
    }
    assert_true(done > 7);
}

/* What a problem may not say, and why an MLP takes a cast. */
void test_result_refusals(void **state)
{
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"fprop fp8_block g=1 m=8 n=256 k=64 copies=both",
         "neither a bias nor an activation"},
        {"fprop fp8_block g=1 m=8 n=256 k=64 bias=1 copies=column",
         "row or both is expected"},
        {"fprop bf16 g=1 m=8 n=256 k=64 bias=1 copies=both",
         "recipe bf16: the recipe keeps x as it is"},
        {"fprop fp8_row g=1 m=8 n=256 k=64 bias=1 copies=row",
         "is that of more than a block"},
        {"fprop nvfp4 g=1 m=8 n=256 k=64 bias=1 copies=row",
         "is that of more than a block"},
        {"dgrad fp8_block g=1 m=8 n=256 k=64 bias=1 copies=row",
         "bias is of fprop, activation of fprop and dgrad"},
        {"fprop fp8_block g=1 m=8 n=256 k=64 bias=1 copies=ro",
         "did you mean 'row'?"},
    };
    struct quern_problem p;
    struct quern_mlp mlp;
    char text[256], *why = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (quern_problem_parse(host_ctx, rows[i].line, &p) != QUERN_EINVAL)
            fail_msg("%s: not refused", rows[i].line);
        if (!strstr(quern_errmsg(host_ctx), rows[i].says))
            fail_msg("%s: '%s' lacks '%s'", rows[i].line,
                     quern_errmsg(host_ctx), rows[i].says);
    }
    assert_int_equal(
        quern_problem_parse(host_ctx,
                            "fprop fp8_block g=1 m=8 n=256 k=64 d=bf16 bias=1 "
                            "activation=swiglu saved=1 copies=both",
                            &p),
        QUERN_OK);
    quern_problem_print(&p, text, sizeof text);
    assert_non_null(strstr(text, " saved=1 copies=both"));
    assert_int_equal(
        quern_mlp_parse(host_ctx, "mlp fp8_row g=2 m=9 hidden=32 ffn=16", &mlp),
        QUERN_OK);
    assert_int_equal(quern_mlp_why(host_ctx, &mlp, &on_host, &why), QUERN_OK);
    assert_non_null(strstr(why, "known only when all of it is"));
    quern_free(why);
}

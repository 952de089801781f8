/* SPDX-License-Identifier: Apache-2.0 */
/* activate.c: products with a bias and an activation: against formulas in
   double, written here, and the order of roundings to the bit. */
#include "host.h"

#include "base/types.h"

#include <math.h>
#include <stdio.h>

enum { GROUPS = 4, ROWS = 61, K = 40, MOST_N = 144 };
static const int32_t lengths[GROUPS] = {17, 0, 33, 8}; /* 3 rows of no group */

/* Inputs of all runs: values that bf16 and fp16 hold. */
struct numbers {
    float a[ROWS * K], b[GROUPS * MOST_N * K];
    float bias[GROUPS * MOST_N], probability[ROWS];
};

static struct numbers *draw(void)
{
    struct numbers *x = malloc(sizeof *x);
    uint64_t state = 77;

    assert_non_null(x);
    for (int i = 0; i < ROWS * K; i++)
        x->a[i] = (float)(qt_random_below(&state, 17) - 8) / 8;
    for (int i = 0; i < GROUPS * MOST_N * K; i++)
        x->b[i] = (float)(qt_random_below(&state, 33) - 16) / 16;
    for (int i = 0; i < GROUPS * MOST_N; i++)
        x->bias[i] = qt_draw(&state, QT_NORMAL);
    for (int i = 0; i < ROWS; i++)
        x->probability[i] = i % 7 == 3 ? 0 : fabsf(qt_draw(&state, QT_NORMAL));
    return x;
}

/* One problem and what came out of it, as fp32. */
struct run {
    struct qn_problem problem;
    int64_t width; /* of D */
    float *d, *p;  /* [ROWS, width], [ROWS, n] or NULL */
};

static void *as_type(const float *from, int64_t count, int type)
{
    void *to = calloc((size_t)count + 16, sizeof *from);

    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        qt_store(to, type, i, from[i]);
    return to;
}

static float *as_floats(void *from, int64_t count, int type)
{
    float *to = malloc((size_t)(count + 1) * sizeof *to);

    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        to[i] = qt_load(from, type, i);
    free(from);
    return to;
}

static void *poison(int64_t count)
{
    void *memory = malloc((size_t)count * 4 + 64);

    assert_non_null(memory);
    return memset(memory, QT_POISON, (size_t)count * 4 + 64);
}

/* The tensors that the problem reads. */
static void set_args(const struct numbers *x, const struct run *r,
                     struct qn_args *args)
{
    const struct qn_problem *p = &r->problem;
    static const float alpha = 0.75f;

    args->a.first_dims = lengths;
    args->bias = p->bias ? x->bias : NULL;
    args->probability = p->probability ? x->probability : NULL;
    args->alpha = p->alpha ? &alpha : NULL;
    args->limit = 1.5f; /* so that both sides of it are met */
}

/* Plan, run and check; the caller frees d and p. */
static void run(const struct numbers *x, const char *line, struct run *r)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_description need;
    struct qn_plan *plan = NULL;
    unsigned char workspace[256] __attribute__((aligned(256))) = {0};
    struct qn_args *args = &need.args;

    if (qn_problem_parse(host_ctx, line, &r->problem) ||
        qn_problem_describe(host_ctx, &r->problem, &need) ||
        qn_plan(host_ctx, &r->problem, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    set_args(x, r, args);
    r->width = args->d.shape[1];
    args->a.data = as_type(x->a, ROWS * K, args->a.type);
    args->b.data = as_type(x->b, GROUPS * r->problem.n * K, args->b.type);
    args->d.data = poison(ROWS * r->width);
    if (r->problem.saved)
        args->p.data = poison(ROWS * r->problem.n);
    args->workspace = workspace;
    if (qn_run(plan, args, NULL) || qn_check(plan, args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    r->d = as_floats(args->d.data, ROWS * r->width, args->d.type);
    r->p = r->problem.saved
               ? as_floats(args->p.data, ROWS * r->problem.n, args->p.type)
               : NULL;
    free(args->a.data);
    free(args->b.data);
    qn_plan_free(plan);
}

static void run_free(struct run *r)
{
    free(r->d);
    free(r->p);
}

/* ------------------------------------------------------------------ double */

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static double in_double(int activation, double a, double b)
{
    const double g = fmin(a, 1.5), u = fmax(-1.5, fmin(b, 1.5));

    switch (activation) {
    case QUERN_SWIGLU:
        return a * logistic(a) * b;
    case QUERN_CLAMPED_SWIGLU:
        return g * logistic((double)1.702f * g) * (u + 1);
    case QUERN_SITU:
        return 4 * tanh(a / 4) * logistic(a) * 25 * tanh(b / 25);
    case QUERN_GEGLU:
        return a / 2 * (1 + tanh(sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))) *
               b;
    case QUERN_REGLU:
        return fmax(a, 0) * b;
    case QUERN_SQUARED_RELU:
        return fmax(a, 0) * fmax(a, 0);
    case QUERN_RELU:
        return fmax(a, 0);
    case QUERN_SILU:
        return a * logistic(a);
    case QUERN_GELU:
        return a / 2 * erfc(-a / sqrt(2));
    case QUERN_GELU_TANH:
        return a / 2 * (1 + tanh(sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
    default:
        return a;
    }
}

/* The factor of the row's result, or without an activation of its bias. */
static double weight_of(const struct numbers *x, const struct run *r, int row)
{
    return r->problem.probability ? (double)x->probability[row] : 1;
}

/* Element (row, column) of P; the products and their sums are exact. */
static double given(const struct numbers *x, const struct run *r, int group,
                    int row, int64_t column)
{
    const struct qn_problem *p = &r->problem;
    double sum = 0;

    for (int k = 0; k < K; k++)
        sum += (double)x->a[row * K + k] *
               (double)x->b[(group * p->n + column) * K + k];
    return (p->alpha ? 0.75 : 1) * sum +
           (p->bias ? (double)x->bias[group * p->n + column] *
                          (p->activation ? 1 : weight_of(x, r, row))
                    : 0);
}

/* The columns of P that result j is made of. */
static void operands_of(const struct run *r, int64_t j, int64_t at[2])
{
    const struct qn_problem *p = &r->problem;
    const int64_t run = p->interleave ? p->interleave : r->width;

    at[0] = at[1] = j;
    if (r->width == p->n)
        return;
    at[0] = j / run * 2 * run + j % run;
    at[1] = at[0] + run;
}

static void expect_near(const char *line, double got, double want,
                        double relative)
{
    if (!(fabs(got - want) <= relative * fmax(fabs(want), 0.25)))
        fail_msg("%s: %.9g, expected %.9g", line, got, want);
}

/* One row of D, and of P where there is one. */
static void check_row(const struct numbers *x, const char *line,
                      const struct run *r, int group, int row)
{
    const double factor = r->problem.activation ? weight_of(x, r, row) : 1;
    int64_t at[2];

    for (int64_t j = 0; j < r->width; j++) {
        operands_of(r, j, at);
        expect_near(line, (double)r->d[row * r->width + j],
                    in_double(r->problem.activation,
                              given(x, r, group, row, at[0]),
                              given(x, r, group, row, at[1])) *
                        factor,
                    4e-6);
    }
    for (int64_t j = 0; j < r->problem.n && r->p; j++)
        expect_near(line, (double)r->p[row * r->problem.n + j],
                    given(x, r, group, row, j), 3e-7);
}

/* All groups' rows; those after them still hold their poison. */
static void check_rows(const struct numbers *x, const char *line,
                       const struct run *r)
{
    int row = 0;

    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < lengths[g]; i++)
            check_row(x, line, r, g, row++);
    for (; row < ROWS; row++) {
        for (int64_t j = 0; j < r->width; j++)
            assert_true(isnan(r->d[row * r->width + j]));
        for (int64_t j = 0; j < r->problem.n && r->p; j++)
            assert_true(isnan(r->p[row * r->problem.n + j]));
    }
}

/* The i-th activation; `bias` only without one. */
static void write_line(char *line, size_t size, const char *recipe,
                       const char *type, int activation, int i)
{
    static const char *const widths[] = {"144", "96", "40", "16", "48"};
    static const char *const runs[] = {"", " interleave=8", " interleave=1",
                                       " interleave=4", ""};
    size_t used = (size_t)snprintf(
        line, size, "fprop %s g=%d m=%d n=%s k=%d d=%s align=2%s%s", recipe,
        GROUPS, ROWS, widths[i % 5], K, type,
        i % 3 == 1 || !activation ? " bias=1" : "",
        i % 4 == 3 ? " alpha=any" : "");

    if (activation)
        snprintf(line + used, size - used, " activation=%s%s%s%s",
                 qn_activation_name(activation), runs[i % 5],
                 i % 2 ? " prob=1" : "", i % 3 != 2 ? " saved=1" : "");
    else if (i % 2)
        snprintf(line + used, size - used, " prob=1");
}

TEST(test_activations)
{
    static const char *const recipes[] = {"bf16", "fp16"};
    struct numbers *x = draw();
    char line[256];
    struct run r;

    for (int i = 0; i < 2 * QUERN_ACTIVATION_COUNT * 5; i++) {
        write_line(line, sizeof line, recipes[i % 2], "f32",
                   i / 2 % QUERN_ACTIVATION_COUNT, i / 2);
        run(x, line, &r);
        check_rows(x, line, &r);
        run_free(&r);
    }
    free(x);
}

/* ------------------------------------------------------------------- order */

/* The same bits, once rounded to the type. */
static void expect_rounded(const char *line, const float *got, int type,
                           const float *wide, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float once = type == QUERN_BF16 ? qt_from_bf16(qt_bf16(wide[i]))
                                              : qt_from_f16(qt_f16(wide[i]));
        if (memcmp(&got[i], &once, sizeof once) && !isnan(once))
            fail_msg("%s: element %lld is %.9g, once rounded %.9g", line,
                     (long long)i, (double)got[i], (double)once);
    }
}

/* D as the cast makes it from an fp32 P: of the type of the recipe. */
static float *cast(const struct numbers *x, const struct run *r, int type)
{
    const struct qn_quantize_args given = {
        .in.data = r->p,
        .row.data = poison(ROWS * r->width),
        .first_dims = lengths,
        .probability = r->problem.probability ? x->probability : NULL,
        .limit = 1.5f};

    assert_int_equal(host_cast(&r->problem, QN_X, r->width, &given), 0);
    return as_floats(given.row.data, ROWS * r->width, type);
}

/* Activation, probability and cast take the fp32 P, not the rounded one that is
   kept: each result has one rounding, and is what the cast makes of that P. */
TEST(test_activation_order)
{
    static const struct {
        const char *recipe, *type;
        int id;
    } types[] = {{"bf16", "bf16", QUERN_BF16}, {"fp16", "f16", QUERN_F16}};
    struct numbers *x = draw();
    struct run wide, narrow;
    char line[256];

    for (int i = 0; i < 2 * (QUERN_ACTIVATION_COUNT - 1); i++) {
        const int activation = 1 + i / 2, type = i % 2;
        static const char text[] =
            "fprop %s g=%d m=%d n=96 k=%d d=%s bias=1 activation=%s prob=1 "
            "saved=1";
        float *made;

        snprintf(line, sizeof line, text, types[type].recipe, GROUPS, ROWS, K,
                 "f32", qn_activation_name(activation));
        run(x, line, &wide);
        snprintf(line, sizeof line, text, types[type].recipe, GROUPS, ROWS, K,
                 types[type].type, qn_activation_name(activation));
        run(x, line, &narrow);
        expect_rounded(line, narrow.d, types[type].id, wide.d,
                       (ROWS - 3) * wide.width);
        expect_rounded(line, narrow.p, types[type].id, wide.p,
                       (ROWS - 3) * (int64_t)96);
        made = cast(x, &wide, types[type].id);
        assert_memory_equal(made, narrow.d,
                            (size_t)(ROWS - 3) * (size_t)wide.width *
                                sizeof *made);
        free(made);
        run_free(&wide);
        run_free(&narrow);
    }
    free(x);
}

/* ------------------------------------------------------------------- edges */

/* A P that the run does not want is not written; D is the same to the bit. */
TEST(test_activation_ends)
{
    static const char *const lines[] = {
        "fprop bf16 g=4 m=61 n=96 k=40 d=f32 bias=1 activation=swiglu saved=1",
        "fprop bf16 g=4 m=61 n=96 k=40 d=f32 bias=1 activation=swiglu",
    };
    struct numbers *x = draw();
    struct run r[2];

    for (int i = 0; i < 2; i++)
        run(x, lines[i], &r[i]);
    assert_non_null(r[0].p);
    assert_null(r[1].p);
    assert_memory_equal(r[0].d, r[1].d, (size_t)(ROWS - 3) * 48 * 4);
    run_free(&r[0]);
    run_free(&r[1]);
    free(x);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c: dgrad that goes back through an activation: to the bit what a
   cast makes of an fp32 dh, its sums in their order, and what is refused. */
#include "host.h"

#include "base/types.h"

#include <math.h>
#include <stdio.h>

enum { GROUPS = 5, ROWS = 171, K = 40, MOST_N = 144, GAP = 8 };
/* The last 3 rows are of no group. */
static const int32_t lengths[GROUPS] = {17, 0, 130, 1, 20};
static const float alpha = 0.75f;

/* Inputs of all runs: values that bf16 and fp16 hold. */
struct numbers {
    float a[ROWS * K], b[GROUPS * MOST_N * K], p[ROWS * 2 * MOST_N];
    float probability[ROWS];
};

static struct numbers *draw(void)
{
    struct numbers *x = malloc(sizeof *x);
    uint64_t state = 177;

    assert_non_null(x);
    for (int i = 0; i < ROWS * K; i++)
        x->a[i] = (float)(qt_random_below(&state, 17) - 8) / 8;
    for (int i = 0; i < GROUPS * MOST_N * K; i++)
        x->b[i] = (float)(qt_random_below(&state, 33) - 16) / 16;
    for (int i = 0; i < ROWS * 2 * MOST_N; i++)
        x->p[i] = (float)(qt_random_below(&state, 129) - 64) / 16;
    for (int i = 0; i < ROWS; i++)
        x->probability[i] = i % 7 == 3 ? 0 : fabsf(qt_draw(&state, QT_NORMAL));
    return x;
}

/* One problem and what came out of it. */
struct run {
    struct qn_problem problem;
    int type;
    int64_t width; /* of D and P */
    void *d;       /* [ROWS, width + GAP] */
    float dbias[GROUPS * 2 * MOST_N], dprob[ROWS];
};

static void *poison(size_t bytes)
{
    void *memory = malloc(bytes + 64);

    assert_non_null(memory);
    return memset(memory, QT_POISON, bytes + 64);
}

/* Rows of `width` values, GAP more from one to the next. */
static void *as_rows(const float *from, int64_t rows, int64_t width, int gap,
                     int type)
{
    void *to = poison((size_t)(rows * (width + gap)) * sizeof *from);

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            qt_store(to, type, i * (width + gap) + j, from[i * width + j]);
    return to;
}

/* The problem's inputs, and the sums' output. */
static void set_args(const struct numbers *x, struct run *r,
                     struct qn_args *args)
{
    const struct qn_problem *p = &r->problem;

    args->a.first_dims = lengths;
    args->a.data = as_rows(x->a, ROWS, K, 0, args->a.type);
    args->b.data = as_rows(x->b, GROUPS * p->n, K, 0, args->b.type);
    if (p->activation) {
        args->p.data = as_rows(x->p, ROWS, r->width, GAP, r->type);
        args->p.stride = args->d.stride = r->width + GAP;
        args->p.bytes = args->d.bytes = (size_t)ROWS *
                                        (size_t)(r->width + GAP) *
                                        (r->type == QUERN_F32 ? 4 : 2);
    }
    args->d.data = r->d = poison((size_t)(ROWS * (r->width + GAP)) * 4);
    args->probability = p->probability ? x->probability : NULL;
    args->alpha = p->alpha ? &alpha : NULL;
    args->dbias = p->dbias ? r->dbias : NULL;
    args->dprob = p->dprob ? r->dprob : NULL;
    args->limit = 1.5f; /* so that both sides of it are met */
}

/* Plan, run and check; the caller frees d. `first` is what dbias holds. */
static void run(const struct numbers *x, const char *line, float first,
                struct run *r)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_description need;
    struct qn_plan *plan = NULL;
    struct qn_args *args = &need.args;

    if (qn_problem_parse(host_ctx, line, &r->problem) ||
        qn_problem_describe(host_ctx, &r->problem, &need) ||
        qn_plan(host_ctx, &r->problem, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    r->width = args->d.shape[1];
    r->type = args->d.type;
    for (int i = 0; i < GROUPS * 2 * MOST_N; i++)
        r->dbias[i] = first;
    memset(r->dprob, QT_POISON, sizeof r->dprob);
    set_args(x, r, args);
    args->workspace =
        aligned_alloc(256, (need.workspace_bytes + 255) / 256 * 256);
    assert_non_null(args->workspace);
    qn_memory_begin(args->workspace, need.workspace_bytes);
    if (qn_run(plan, args, NULL) || qn_check(plan, args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    free(args->a.data);
    free(args->b.data);
    free(args->p.data);
    free(args->workspace);
    qn_plan_free(plan);
}

static float d_at(const struct run *r, int64_t row, int64_t column)
{
    const int gap = r->problem.activation ? GAP : 0;

    return qt_load(r->d, r->type, row * (r->width + gap) + column);
}

/* ------------------------------------------------------------------- order */

/* D and dprob as the cast makes them from that dh, in fp32. */
static void *cast(const struct numbers *x, const struct run *r,
                  const struct run *dh, float dprob[ROWS])
{
    const struct qn_quantize_args given = {
        .in.data = dh->d,
        .saved.data = (void *)(uintptr_t)x->p,
        .row.data = poison((size_t)(ROWS * (r->width + GAP)) * 4),
        .first_dims = lengths,
        .probability = r->problem.probability ? x->probability : NULL,
        .dprob = r->problem.dprob ? dprob : NULL,
        .limit = 1.5f};

    host_cast(&r->problem, QN_DY, r->width, &given);
    return given.row.data;
}

/* Sums of 32 rows each, and then of these. */
static float sum_column(const struct run *r, int64_t start, int rows,
                        int64_t column)
{
    float sum = 0, part = 0;

    for (int i = 0; i < rows; i++) {
        const float x = d_at(r, start + i, column);

        part = i % 32 ? part + x : x;
        if (i % 32 == 31 || i == rows - 1)
            sum = i < 32 ? part : sum + part;
    }
    return sum;
}

static void check_dbias(const char *line, const struct run *r, float first)
{
    const int adds = r->problem.dbias == QUERN_DBIAS_ADD;
    int64_t start = 0;

    for (int g = 0; g < GROUPS; start += lengths[g++])
        for (int64_t j = 0; j < r->width; j++) {
            const float sum = sum_column(r, start, lengths[g], j);
            const float want = !adds ? sum : lengths[g] ? first + sum : first;
            const float got = r->dbias[g * r->width + j];

            if (memcmp(&got, &want, sizeof got))
                fail_msg("%s: dbias[%d, %lld] is %.9g, expected %.9g", line, g,
                         (long long)j, (double)got, (double)want);
        }
}

/* In another order than the cast's. */
static void check_dprob(const char *line, const struct run *r,
                        const float cast_dprob[ROWS])
{
    for (int i = 0; i < ROWS - 3 && r->problem.dprob; i++)
        if (!(fabsf(r->dprob[i] - cast_dprob[i]) <=
              4e-5f * fmaxf(fabsf(cast_dprob[i]), 16)))
            fail_msg("%s: dprob[%d] is %.9g, a cast's %.9g", line, i,
                     (double)r->dprob[i], (double)cast_dprob[i]);
    for (int i = ROWS - 3; i < ROWS; i++)
        assert_true(isnan(r->dprob[i]));
}

/* Rows of groups are the cast's; what is after and between them is as it
   was. */
static void check_rows(const char *line, const struct run *r, const void *made)
{
    const int64_t pitch = (r->width + 7) / 8 * 8; /* rows of whole 16 bytes */

    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < r->width + GAP; j++) {
            const float got = d_at(r, i, j);
            const float want = i < ROWS - 3 && j < r->width
                                   ? qt_load(made, r->type, i * pitch + j)
                                   : NAN;

            if (isnan(want) ? !isnan(got) : got != want)
                fail_msg("%s: d[%lld, %lld] is %.9g, expected %.9g", line,
                         (long long)i, (long long)j, (double)got, (double)want);
        }
}

/* The i-th problem of an activation; `line` without, and what is wanted. */
static void write_lines(char line[2][256], const char *recipe, const char *type,
                        int activation, int i)
{
    static const char *const runs[] = {"", " interleave=8", " interleave=1", "",
                                       " interleave=4"};
    static const char *const sums[] = {" dbias=1", " dbias=add dprob=1"};
    static const int widths[] = {144, 96, 40, 15, 132};
    char base[160];

    snprintf(base, sizeof base,
             "dgrad %s g=%d m=%d n=%d k=%d layout=tn align=2%s", recipe, GROUPS,
             ROWS, widths[i % 5], K, i % 4 == 3 ? " alpha=any" : "");
    snprintf(line[0], 256, "%s d=f32", base);
    snprintf(line[1], 256, "%s d=%s activation=%s%s%s%s", base, type,
             qn_activation_name(activation),
             qn_activation_operands(activation) == 1 ? "" : runs[i % 5],
             i % 2 ? " prob=1" : "", sums[i % 2]);
}

enum { GRADIENTS = QUERN_ACTIVATION_COUNT - 1 }; /* all but none */

TEST(test_gradients)
{
    static const char *const recipes[] = {"bf16", "fp16"}, *const types[] = {
                                                               "bf16", "f16"};
    struct numbers *x = draw();
    struct run *r = calloc(2, sizeof *r);
    char line[2][256];

    assert_non_null(r);
    for (int i = 0; i < 2 * GRADIENTS * 5; i++) {
        float dprob[ROWS];
        void *made;

        write_lines(line, recipes[i % 2], types[i % 2], 1 + i / 2 % GRADIENTS,
                    i / 2);
        run(x, line[0], 0, &r[0]);
        run(x, line[1], 2.5f, &r[1]);
        made = cast(x, &r[1], &r[0], dprob);
        check_rows(line[1], &r[1], made);
        check_dbias(line[1], &r[1], 2.5f);
        check_dprob(line[1], &r[1], dprob);
        free(made);
        free(r[0].d);
        free(r[1].d);
    }
    free(r);
    free(x);
}

/* Sums that a cast makes later, of D as it is stored: docs/numerics.md. */
TEST(test_gradient_sums_later)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct numbers *x = draw();
    struct run *r = calloc(1, sizeof *r);
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan = NULL;
    struct qn_quantization q;
    float later[GROUPS * 2 * MOST_N];
    unsigned char *workspace;

    assert_non_null(r);
    run(x, "dgrad bf16 g=5 m=171 n=96 k=40 layout=tn activation=swiglu dbias=1",
        2.5f, r);
    assert_int_equal(r->width, 192);
    if (qn_quantize_parse(host_ctx,
                          "quantize bf16 of=dy g=5 m=171 k=192 copies=rowwise "
                          "dbias=1",
                          &q) ||
        qn_quantize_needs(host_ctx, &q, &need) ||
        qn_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s", quern_errmsg());
    workspace = aligned_alloc(256, (need.workspace_bytes + 255) / 256 * 256);
    assert_non_null(workspace);
    memset(workspace, 0, need.workspace_bytes);
    need.args.in.data = r->d;
    need.args.in.stride = r->width + GAP;
    need.args.in.bytes = (size_t)(ROWS * (r->width + GAP)) * 2;
    need.args.first_dims = lengths;
    need.args.sizes_type = QUERN_I32;
    need.args.dbias = later;
    need.args.workspace = workspace;
    if (qn_quantize_run(plan, &need.args, NULL))
        fail_msg("%s", quern_errmsg());
    assert_memory_equal(later, r->dbias, sizeof *later * 5 * 192);
    qn_quantize_plan_free(plan);
    free(workspace);
    free(r->d);
    free(r);
    free(x);
}

/* -------------------------------------------------------------- refusals */

static void expect_refused(const char *line, const char *part)
{
    struct qn_problem p;

    assert_int_equal(qn_problem_parse(host_ctx, line, &p), QUERN_EINVAL);
    if (!strstr(quern_errmsg(), part))
        fail_msg("%s: '%s' is not in '%s'", line, part, quern_errmsg());
}

TEST(test_gradient_refusals)
{
#define LINE "dgrad bf16 g=4 m=64 n=64 k=32 "
    expect_refused(LINE "dbias=1", "dprob needs dgrad");
    expect_refused(
        "fprop bf16 g=4 m=64 n=64 k=32 activation=swiglu prob=1 dprob=1",
        "dprob needs dgrad");
    expect_refused(LINE "activation=swiglu dprob=1", "dprob=1 needs");
    expect_refused(LINE "activation=swiglu saved=1", "saved=1");
    expect_refused(LINE "activation=swiglu bias=1", "bias=1");
    expect_refused(LINE "activation=swiglu beta=1", "beta");
    expect_refused(LINE "activation=swiglu ragged=none", "ragged=m");
    expect_refused(LINE "activation=swiglu interleave=48", "interleave=48");
    expect_refused(LINE "activation=swiglu dbias=2", "0, 1 or add");
    expect_refused(LINE "activation=swiglu dprob=2", "0 or 1");
    expect_refused("dgrad bf16 g=4 m=64 n=64 k=128 activation=swiglu "
                   "copies=rowwise",
                   "keeps dy as it is");
    expect_refused("dgrad fp8_block g=4 m=64 n=64 k=128 activation=swiglu "
                   "copies=columnwise",
                   "rowwise or both");
    expect_refused("dgrad mxfp4 g=4 m=64 n=64 k=128 activation=swiglu "
                   "dequantize=fp8",
                   "activation: both products of dgrad");
#undef LINE
}

/* Arguments of a run that would be right without the change. */
static void expect_argument(const struct qn_plan *plan,
                            const struct qn_args *args, const char *part)
{
    assert_int_equal(qn_run(plan, args, NULL), QUERN_EINVAL);
    if (!strstr(quern_errmsg(), part))
        fail_msg("'%s' is not in '%s'", part, quern_errmsg());
}

TEST(test_gradient_arguments)
{
    static const char line[] = "dgrad bf16 g=5 m=171 n=64 k=40 layout=tn "
                               "activation=swiglu prob=1 dbias=1 dprob=1";
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct numbers *x = draw();
    struct run *r = calloc(1, sizeof *r);
    struct qn_description need;
    struct qn_plan *plan;
    struct qn_args args;

    assert_non_null(r);
    assert_int_equal(qn_problem_parse(host_ctx, line, &r->problem), 0);
    assert_int_equal(qn_problem_describe(host_ctx, &r->problem, &need), 0);
    assert_int_equal(qn_plan(host_ctx, &r->problem, &options, &plan), 0);
    r->width = need.args.d.shape[1];
    r->type = need.args.d.type;
    assert_int_equal(r->width, 128);
    assert_int_equal(need.args.p.shape[1], 128);
    set_args(x, r, &need.args);
    need.args.workspace = poison(need.workspace_bytes);
#define EXPECT(change, part)                                                   \
    do {                                                                       \
        args = need.args;                                                      \
        change;                                                                \
        expect_argument(plan, &args, part);                                    \
    } while (0)
    EXPECT(args.p.stride = 127, "pre.stride is 127");
    EXPECT(args.p.data = args.d.data, "overlaps");
    EXPECT(args.dprob = args.dbias, "overlaps");
    EXPECT(args.dbias = args.p.data, "overlaps");
    EXPECT(args.probability = args.dprob, "overlaps");
#undef EXPECT
    free(need.args.workspace);
    free(need.args.a.data);
    free(need.args.b.data);
    free(need.args.p.data);
    free(r->d);
    qn_plan_free(plan);
    free(r);
    free(x);
}

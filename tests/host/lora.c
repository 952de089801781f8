/* SPDX-License-Identifier: Apache-2.0 */
/*
** lora.c: products with low-rank adapters, by the host backend: lora_t and D
** against sums in double, groups of any size, and lines and arguments that are
** refused.
*/
#include "host.h"

#include "base/element.h"
#include "base/random.h"
#include "oracle/oracle.h"
#include "problem/problem.h"

#include <math.h>
#include <stdio.h>

enum { GROUPS = 4, ROWS = 200, K = 72, N = 40, RANK = 129 };

/* Operands of one run, in the order of K for N of fprop. Rows of no group are
   poisoned. */
static struct {
    _Alignas(64) unsigned short x[ROWS * K], w[GROUPS * N * K];
    _Alignas(64) unsigned short a[GROUPS * RANK * K], b[GROUPS * N * RANK];
    _Alignas(64) unsigned short t[ROWS * RANK], y[ROWS * N];
    _Alignas(64) unsigned char workspace[1 << 17];
    float scale;
    int lengths[GROUPS], noop;
} m;

static void fill(unsigned short *to, size_t count, uint64_t *seed, double scale)
{
    for (size_t i = 0; i < count; i++)
        qn_element_store(
            to, QUERN_BF16, i,
            (float)(((double)(qn_random_next(seed) % 2001) / 1000 - 1) *
                    scale));
}

static void begin(const int lengths[GROUPS], int rank)
{
    uint64_t seed = (uint64_t)rank;

    memset(&m, 0, sizeof m);
    memset(m.t, 0xa5, sizeof m.t);
    memset(m.y, 0xa5, sizeof m.y);
    fill(m.x, ROWS * K, &seed, 1);
    fill(m.w, GROUPS * N * K, &seed, 0.1);
    fill(m.a, (size_t)(GROUPS * rank * K), &seed, 0.2);
    fill(m.b, (size_t)(GROUPS * N * rank), &seed, 0.3);
    memcpy(m.lengths, lengths, sizeof m.lengths);
    m.scale = 0.7f;
}

static void point(struct quern_args *args)
{
    void *const data[][2] = {
        {(void *)QUERN_ARG_WORKSPACE, m.workspace},
        {(void *)QUERN_ARG_LENGTHS, m.lengths},
        {(void *)QUERN_ARG_NOOP, &m.noop},
        {(void *)QUERN_ARG_A, m.x},
        {(void *)QUERN_ARG_B, m.w},
        {(void *)QUERN_ARG_D, m.y},
        {(void *)QUERN_ARG_LORA_A, m.a},
        {(void *)QUERN_ARG_LORA_B, m.b},
        {(void *)QUERN_ARG_LORA_T, m.t},
        {(void *)QUERN_ARG_LORA_SCALE, &m.scale},
    };

    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        args->of[(size_t)data[i][0]].data = data[i][1];
}

static struct quern_plan *plan_of(const char *line)
{
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    host.backend = QUERN_BACKEND_HOST;
    if (quern_plan_create(host_ctx, line, &host, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    return plan;
}

static double at(const unsigned short *of, size_t i)
{
    return (double)qn_element_load(of, QUERN_BF16, i);
}

/* Row `row` of group g; each value within half a unit of bf16 and the error of
   fp32 sums. */
static void compare_row(int g, int row, int rank)
{
    double t[RANK];

    for (int r = 0; r < rank; r++) {
        double sum = 0;

        for (int k = 0; k < K; k++)
            sum += at(m.x, (size_t)(row * K + k)) *
                   at(m.a, (size_t)((g * rank + r) * K + k));
        t[r] = at(m.t, (size_t)(row * rank + r));
        assert_true(fabs(t[r] - sum * (double)m.scale) <=
                    fabs(t[r]) / 256 + 1e-5);
    }
    for (int n = 0; n < N; n++) {
        const double y = at(m.y, (size_t)(row * N + n));
        double sum = 0;

        for (int k = 0; k < K; k++)
            sum += at(m.x, (size_t)(row * K + k)) *
                   at(m.w, (size_t)((g * N + n) * K + k));
        for (int r = 0; r < rank; r++)
            sum += t[r] * at(m.b, (size_t)((g * N + n) * rank + r));
        assert_true(fabs(y - sum) <= fabs(y) / 256 + 1e-4);
    }
}

static int is_poison(const unsigned short *of, size_t from, size_t to)
{
    while (from < to && of[from] == 0xa5a5)
        from++;
    return from == to;
}

/* Ranks and sizes from nothing to all rows in one group. */
TEST(test_lora)
{
    static const int ranks[] = {1, 7, 8, 63, 64, 65, 127, 128, RANK};
    static const int sizes[][GROUPS] = {{0, 0, 0, 0},   {ROWS, 0, 0, 0},
                                        {1, 7, 63, 64}, {65, 127, 0, 1},
                                        {0, 0, 128, 0}, {3, 129, 0, 2}};

    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        struct quern_args args = QUERN_ARGS_INIT;
        const int *lengths = sizes[i % 6], rank = ranks[i];
        struct quern_plan *plan;
        char line[100];
        int row = 0;

        snprintf(line, sizeof line, "fprop bf16 g=4 m=%d n=%d k=%d lora=%d",
                 ROWS, N, K, rank);
        plan = plan_of(line);
        begin(lengths, rank);
        point(&args);
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
        assert_int_equal(quern_check(plan, &args, NULL), QUERN_OK);
        for (int g = 0; g < GROUPS; g++)
            for (int end = row + lengths[g]; row < end; row++)
                compare_row(g, row, rank);
        assert_true(
            is_poison(m.t, (size_t)(row * rank), (size_t)(ROWS * rank)));
        assert_true(is_poison(m.y, (size_t)(row * N), ROWS * N));
        quern_plan_destroy(plan);
    }
}

/* All launches are skipped; fewer rows; without a scale it is 1. */
TEST(test_lora_runs)
{
    static const int lengths[GROUPS] = {3, 0, 9, 1};
    struct quern_plan *plan = plan_of("fprop bf16 g=4 m=200 n=40 k=72 lora=8");
    struct quern_args args = QUERN_ARGS_INIT;

    begin(lengths, 8);
    point(&args);
    m.noop = 1;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    assert_true(is_poison(m.t, 0, ROWS * 8) && is_poison(m.y, 0, ROWS * N));
    m.noop = 0;
    args.rows = 13;
    args.of[QUERN_ARG_LORA_SCALE].data = NULL;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    m.scale = 1;
    compare_row(0, 0, 8);
    compare_row(3, 12, 8);
    assert_true(is_poison(m.t, 13 * 8, ROWS * 8));
    quern_plan_destroy(plan);
}

static void judge(const char *line, const int64_t *sizes)
{
    static const struct qn_options options = {
        .command = "test_host", .seed = 1, .backend = QUERN_BACKEND_HOST};
    struct qn_job job = {0};
    struct qn_verdict verdict;
    struct qn_problem problem;

    assert_int_equal(qn_problem_parse(host_ctx, line, &problem), 0);
    assert_int_equal(qn_job_begin(&job, &options, host_ctx, &problem, sizes),
                     0);
    assert_int_equal(qn_call_queue(&job.call), 0);
    assert_int_equal(qn_oracle_judge(&job, QN_ORACLE_FLOAT64, 0, &verdict), 0);
    if (!verdict.passed || !verdict.adapted)
        fail_msg("%s: error %g of %g", line, verdict.error, verdict.tolerance);
    qn_call_free(&job.call);
}

/* Packed weights, forward and backward, against float64. */
TEST(test_lora_packed)
{
    static const char *const recipes[] = {"w4a16_mxfp4", "w4a16_nvfp4",
                                          "w4a16_int4", "w4a16_int4_zeros",
                                          "w8a16_fp8_block"};
    static const int64_t sizes[][GROUPS] = {
        {0, 0, 0, 0}, {0, ROWS, 0, 0}, {1, 7, 63, 64}, {65, 127, 0, 1}};
    static const int ranks[] = {1, 8, 64, 65};

    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            char line[100];

            snprintf(line, sizeof line, "%s %s g=4 m=%d n=72 k=136 lora=%d",
                     (i + j) % 2 ? "dgrad" : "fprop", recipes[i], ROWS,
                     ranks[(i + j) % 4]);
            judge(line, sizes[j]);
        }
}

TEST(test_lora_bad_arguments)
{
    static const int lengths[GROUPS] = {3, 0, 9, 1};
    struct quern_plan *plan = plan_of("fprop bf16 g=4 m=200 n=40 k=72 lora=8");
    struct quern_args args = QUERN_ARGS_INIT;

    begin(lengths, 8);
    point(&args);
    args.of[QUERN_ARG_LORA_T].data = NULL;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
    assert_string_equal(quern_errmsg(), "lora_t is NULL: the plan needs it");
    args.of[QUERN_ARG_LORA_T].data = m.a;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
    assert_non_null(strstr(quern_errmsg(), "lora_a"));
    assert_non_null(strstr(quern_errmsg(), "lora_t"));
    point(&args);
    args.of[QUERN_ARG_LORA_B].stride = 16;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
    assert_string_equal(quern_errmsg(), "lora_b.stride is 16: this operand is "
                                        "packed, 0 is expected");
    point(&args);
    args.of[QUERN_ARG_LORA_B].stride = 0;
    m.lengths[1] = -1;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    assert_int_equal(quern_check(plan, &args, NULL), QUERN_ESIZES);
    quern_plan_destroy(plan);
}

TEST(test_lora_refused)
{
#define LINE "fprop bf16 g=4 m=200 n=40 k=72 "
    static const char *const lines[][2] = {
        {LINE "lora=257", "lora=257: ranks of 1 to 256 are served"},
        {LINE "lora=-1", "lora=-1"},
        {LINE "lora=8 ragged=n", "lora=8: fprop or dgrad with ragged=m"},
        {LINE "lora=8 layout=tt", "lora=8: fprop or dgrad with ragged=m"},
        {"wgrad bf16 g=4 m=40 n=40 k=72 lora=8",
         "lora=8: fprop or dgrad with ragged=m"},
        {LINE "lora=8 beta=1", "lora=8: beta=0 is expected"},
        {LINE "lora=8 activation=swiglu",
         "lora=8 cannot be combined with activation=swiglu"},
        {"fprop mxfp8 g=4 m=200 n=128 k=128 lora=8",
         "lora=8, recipe mxfp8: it quantizes the tokens"},
        {"fprop w4a8_mxfp4 g=4 m=200 n=128 k=128 lora=8",
         "lora=8, recipe w4a8_mxfp4: it quantizes the tokens"},
    };
#undef LINE
    host_refuses(lines, sizeof lines / sizeof lines[0]);
}

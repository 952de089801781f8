/* SPDX-License-Identifier: Apache-2.0 */
/* test_tune.c: the tuner against a GPU whose times are planted: it finds the
   fastest, says why the others are out, and stops when it must. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

#include "base/clock.h"

#define PROBLEM "fprop bf16 g=4 m=600 n=256 k=64"

/* k_small is the model's choice. */
#define TIMES "k_small=100,k_large=80,k_cluster=150"

/* A size at which the model gives k_spills a chance. */
#define LARGE "fprop bf16 g=2 m=4096 n=1024 k=64"

static int tune(struct quern_context *ctx, const char *text,
                const struct qn_tune_options *options,
                struct quern_tune_result *result)
{
    struct qn_problem p = test_problem(ctx, text);

    return qn_tune(ctx, &p, options, result);
}

/* The result of a kernel, without its own band. */
static const struct quern_tune_candidate *
candidate(const struct quern_tune_result *result, const char *kernel)
{
    for (int i = 0; i < result->count; i++)
        if (!strcmp(result->candidates[i].kernel, kernel) &&
            !result->candidates[i].band)
            return &result->candidates[i];
    fail_msg("%s is no candidate", kernel);
    return NULL;
}

static void expect_reason(const struct quern_tune_result *result,
                          const char *kernel, const char *part)
{
    const char *reason = candidate(result, kernel)->reason;

    if (!strstr(reason, part))
        fail_msg("%s: '%s' lacks '%s'", kernel, reason, part);
}

/* ------------------------------------------------------------------- winner */

TEST(finds_the_fastest)
{
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    test_expect_plan(ctx, PROBLEM, "k_small", 0);
    test_expect_why(ctx, PROBLEM, "tuned", 0);
    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_OK, "");
    assert_string_equal(r.kernel, "k_large");
    assert_string_equal(r.model, "k_small");
    assert_true(r.certain && r.rounds >= 12 && r.rounds < 40);
    assert_true(r.ratio > 1.2499 && r.ratio < 1.2501);
    assert_true(r.seconds > 79e-6 && r.seconds < 81e-6);
    assert_true(r.bytes >= 600 * 64 * 2 + 4 * 256 * 64 * 2 + 600 * 256 * 2);
    expect_reason(&r, "k_large", "");
    assert_int_equal(candidate(&r, "k_large")->reason[0], 0);
    expect_reason(&r, "k_small", "1.250 x as long as the best");
    /* 1.5 or 1.875, as k_large is there by then or not */
    expect_reason(&r, "k_cluster", " x as long as the best");
    assert_int_equal(candidate(&r, "k_cluster")->rounds, 2);
    expect_reason(&r, "k_spills", "the model expects 3.0 x the cycles");
    expect_reason(&r, "k_hungry", "300000 bytes of shared memory");
    expect_reason(&r, "k_next", "made for sm_100a");
    assert_non_null(strstr(r.file, "/cache/tune/Fake.tune"));
    quern_free(r.candidates);
    test_expect_balance();
    test_expect_plan(ctx, PROBLEM, "k_large", 1);
    qn_close(ctx);
}

/* By another process, too: same bucket, another, and one with other sizes. */
TEST(plans_use_the_winner)
{
    const struct qn_plan_options named = {.kernel = "k_cluster"};
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;
    struct qn_plan *plan;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_OK, "");
    quern_free(r.candidates);
    qn_close(ctx);
    ctx = test_open();
    test_expect_plan(ctx, PROBLEM, "k_large", 1);
    /* 128 to 191 rows in each of 4 groups */
    test_expect_plan(ctx, "fprop bf16 g=4 m=512 n=256 k=64", "k_large", 1);
    test_expect_plan(ctx, "fprop bf16 g=4 m=767 n=256 k=64", "k_large", 1);
    test_expect_plan(ctx, "fprop bf16 g=4 m=768 n=256 k=64", "k_small", 0);
    test_expect_plan(ctx, "fprop bf16 g=4 m=511 n=256 k=64", "k_small", 0);
    test_expect_plan(ctx, "fprop bf16 g=4 m=600 n=264 k=64", "k_small", 0);
    test_expect_plan(ctx, "fprop bf16 g=5 m=750 n=256 k=64", "k_small", 0);
    test_expect_why(ctx, PROBLEM,
                    "tuned: 1.25 x the model's choice, groups of 128 "
                    "to 191 along m\n    80.0 us, the model's 100.0 "
                    "us; ",
                    1);
    test_expect_why(ctx, PROBLEM, "> k_large (tuned)\n", 1);
    test_expect_why(ctx, PROBLEM, "  k_small\n", 1);
    plan = test_plan(ctx, PROBLEM, &named);
    qn_plan_free(plan);
    assert_string_equal(test_cuda->kernel, "k_cluster");
    qn_close(ctx);
    setenv("QUERN_TUNE", "", 1);
    ctx = test_open();
    test_expect_plan(ctx, PROBLEM, "k_small", 0);
    qn_close(ctx);
}

/* With noise of 6 % and spikes, and 4 % between the best. */
TEST(finds_it_in_noise)
{
    struct quern_context *ctx = test_open();

    setenv("FAKE_CUDA_TIMES", "k_small=100,k_large=96,k_cluster=101", 1);
    setenv("FAKE_CUDA_JITTER", "60", 1);
    for (unsigned seed = 1; seed <= 8; seed++) {
        const struct qn_tune_options options = {.seed = seed, .keep = 1};
        struct quern_tune_result r;

        test_cuda->random = seed;
        test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_OK, "");
        assert_string_equal(r.kernel, "k_large");
        assert_true(r.rounds > 5);
        assert_true(r.ratio > 1.02 && r.ratio < 1.09);
        assert_int_equal(r.file[0], 0);
        quern_free(r.candidates);
    }
    qn_close(ctx);
}

/* Times less than 0.5 % apart are equal. */
TEST(the_model_wins_ties)
{
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    setenv("FAKE_CUDA_TIMES", "k_cluster=100,k_large=100,k_small=100.3", 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_OK, "");
    assert_string_equal(r.kernel, "k_small");
    assert_true(r.certain);
    assert_true(r.ratio > 0.9999 && r.ratio < 1.0001);
    quern_free(r.candidates);
    test_expect_why(ctx, PROBLEM, "tuned: the model's choice is the fastest",
                    1);
    qn_close(ctx);
}

TEST(cold_and_warm_differ)
{
    static const struct {
        int l2;
        const char *winner;
    } cases[] = {{QUERN_L2_COLD, "k_large"},
                 {QUERN_L2_WARM, "k_small"},
                 {QUERN_L2_BOTH, "k_cluster"}};
    struct quern_context *ctx = test_open();

    setenv("FAKE_CUDA_TIMES", "k_small=80/300,k_large=150/160,k_cluster=85/175",
           1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct qn_tune_options options = {.l2 = cases[i].l2};
        struct quern_tune_result r;

        test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_OK, "");
        assert_string_equal(r.kernel, cases[i].winner);
        quern_free(r.candidates);
    }
    qn_close(ctx);
}

/* A linked registry whose one kernel has a band. */
static const unsigned char band_params[] = {GPU_PARAMS, QN_PARAM_band};
static struct qn_kernel banded[] = {
    GPU_KERNEL("k_banded", "sm_90a", 128, 64, 1, 1, 1000)};
static const struct quern_registry linked = {
    .hash = "linked", .kernels = banded, .nkernels = 1};

static struct quern_context *open_banded(void)
{
    struct quern_context *ctx;

    banded[0].cubin = "cubin of k_banded.cu";
    banded[0].params = band_params;
    banded[0].nparams = sizeof band_params;
    ctx = test_open_with(&linked);
    test_cuda->band_at = sizeof band_params;
    test_cuda->param_sizes[sizeof band_params - 1] = sizeof(int);
    return ctx;
}

static int band_of_run(struct quern_context *ctx)
{
    struct qn_plan *plan = test_plan(ctx, PROBLEM, NULL);
    struct qn_args args = test_args(ctx, PROBLEM);
    int band;

    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    memcpy(&band, test_cuda->params[sizeof band_params - 1], sizeof band);
    test_args_free(&args);
    qn_plan_free(plan);
    return band;
}

TEST(bands_run_too)
{
    const struct qn_tune_options aot = {.backend = QUERN_BACKEND_AOT};
    struct quern_context *ctx = open_banded();
    struct quern_tune_result r;
    int usual = band_of_run(ctx);
    char times[64];

    assert_true(usual > 1);
    snprintf(times, sizeof times, "k_banded=100,k_banded@%d=90", usual * 2);
    setenv("FAKE_CUDA_TIMES", times, 1);
    test_expect(tune(ctx, PROBLEM, &aot, &r), QUERN_OK, "");
    assert_string_equal(r.kernel, "k_banded");
    assert_int_equal(r.band, usual * 2);
    assert_true(r.ratio > 1.11 && r.ratio < 1.12);
    quern_free(r.candidates);
    assert_int_equal(band_of_run(ctx), usual * 2);
    test_expect_why(ctx, PROBLEM,
                    "tuned: 1.11 x the model's choice, in bands of", 1);
    qn_close(ctx);
    assert_int_equal(test_count("nvrtc"), 0);
}

/* ------------------------------------------------------------------- limits */

TEST(stops_when_time_is_up)
{
    const struct qn_tune_options options = {.seconds = 0.5, .threads = 1},
                                 none = {.seconds = 0.01, .threads = 1};
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;
    double start = qn_clock_seconds();

    setenv("FAKE_NVRTC_DELAY", "700", 1);
    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_expect(tune(ctx, PROBLEM, &none, &r), QUERN_EINVAL,
                "options.seconds is 0.010: time was up before");
    quern_free(r.candidates);
    test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_OK, "");
    assert_int_equal(r.certain, 0);
    assert_true(r.rounds >= 2);
    expect_reason(&r, "k_cluster", "time was up before it was compiled");
    quern_free(r.candidates);
    assert_true(qn_clock_seconds() - start < 6);
    test_expect_balance();
    test_expect_why(ctx, PROBLEM, "(time was up before that was certain)", 1);
    qn_close(ctx);
}

/* The last word of each round; after the third: stop. */
/* Hold the lock of each kernel that was compiled before, as processes do that
   compile; their number. */
static int hold_locks(int *locks, int most)
{
    char path[400];
    struct dirent *entry;
    int count = 0;
    DIR *list;

    test_shell("rm -rf '%s'/entries/* '%s'/index/*");
    snprintf(path, sizeof path, "%s/lock", test_cache);
    list = opendir(path);
    assert_non_null(list);
    while ((entry = readdir(list)))
        if (entry->d_name[0] != '.' && count < most) {
            locks[count] = openat(dirfd(list), entry->d_name, O_RDWR);
            assert_int_equal(flock(locks[count++], LOCK_EX | LOCK_NB), 0);
        }
    closedir(list);
    return count;
}

TEST(waits_for_others_until_time_is_up)
{
    const struct qn_tune_options options = {.seconds = 0.5, .threads = 2};
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;
    int locks[64], count;
    double start;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_OK, "");
    quern_free(r.candidates);
    qn_close(ctx);
    count = hold_locks(locks, 64);
    assert_in_range(count, 2, 63);
    ctx = test_open();
    start = qn_clock_seconds();
    test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_EINVAL,
                "time was up while another process compiled it");
    assert_true(qn_clock_seconds() - start < 3);
    quern_free(r.candidates);
    while (count)
        close(locks[--count]);
    /* nothing of that stays with the thread */
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_OK, "");
    quern_free(r.candidates);
    qn_close(ctx);
}

static int stop_early(void *user, const struct quern_tune_progress *p)
{
    int *told = user;

    assert_true(p->elapsed >= 0 && p->candidates >= 3 && p->rounds > 0);
    if (p->best)
        assert_true(p->best->seconds > 0);
    return ++*told == 3;
}

TEST(stops_when_told_to)
{
    int told = 0;
    const struct qn_tune_options options = {.progress = stop_early,
                                            .user = &told};
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    setenv("FAKE_CUDA_JITTER", "200", 1);
    test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_OK, "");
    assert_int_equal(told, 3);
    assert_int_equal(r.rounds, 3);
    assert_int_equal(r.certain, 0);
    quern_free(r.candidates);
    qn_close(ctx);
}

static int stop_at_once(void *user, const struct quern_tune_progress *p)
{
    (void)user, (void)p;
    return 1;
}

TEST(says_who_ended_it)
{
    const struct qn_tune_options options = {.progress = stop_at_once};
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_EINVAL,
                "options.progress ended it before any candidate was measured");
    quern_free(r.candidates);
    test_expect_balance();
    qn_close(ctx);
}

TEST(says_what_memory_is_missing)
{
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    test_cuda->free_bytes = 1000;
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_ECUDA,
                "bytes of device memory for operands and 8192 to drive L2 out, "
                "1000 of 1099511627776 are free");
    quern_free(r.candidates);
    test_expect_balance();
    qn_close(ctx);
}

TEST(refuses_bad_use)
{
    static const struct {
        struct qn_tune_options options;
        const char *says;
    } bad[] = {
        {{.backend = QUERN_BACKEND_HOST}, "options.backend is host"},
        {{.backend = QUERN_BACKEND_CUBLASLT}, "options.backend is cublaslt"},
        {{.backend = 17}, "options.backend is 17"},
        {{.l2 = 9}, "options.l2 is 9"},
        {{.seconds = -1}, "options.seconds is -1"},
        {{.sms = -1}, "options.sms is -1"},
    };
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, PROBLEM);
    struct quern_tune_result r;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        test_expect(qn_tune(ctx, &p, &bad[i].options, &r), QUERN_EINVAL,
                    bad[i].says);
    test_expect(qn_tune(NULL, &p, NULL, &r), QUERN_EINVAL, "ctx");
    test_expect(qn_tune(ctx, NULL, NULL, &r), QUERN_EINVAL, "problem");
    test_expect(qn_tune(ctx, &p, NULL, NULL), QUERN_EINVAL, "result");
    test_expect(tune(ctx, "fprop bf16 g=4 m=600 n=256 k=60", NULL, &r),
                QUERN_ENOKERNEL, "k % 8 == 0 is false");
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_tune(ctx, &p, NULL, &r), QUERN_ECAPTURE, "tuning");
    assert_int_equal(test_cuda->launches, 0);
    qn_close(ctx);
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    test_cuda->devices = 0;
    ctx = test_open();
    test_expect(qn_tune(ctx, &p, NULL, &r), QUERN_ENODEVICE, "GPU");
    qn_close(ctx);
}

/* ----------------------------------------------------------------- failures */

TEST(goes_on_after_failures)
{
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    setenv("FAKE_NVRTC_REFUSE", "k_cluster", 1);
    setenv("FAKE_CUDA_TIMES", "k_small=120,k_large=fail", 1);
    test_expect(tune(ctx, LARGE, NULL, &r), QUERN_OK, "");
    expect_reason(&r, "k_spills", "spills registers");
    assert_string_equal(r.kernel, "k_small");
    assert_string_equal(r.model, "k_small");
    expect_reason(&r, "k_cluster", "the test's compile error");
    expect_reason(&r, "k_large",
                  "cuLaunchKernelEx: some error (CUDA error 719)");
    quern_free(r.candidates);
    test_expect_balance();
    qn_close(ctx);
}

TEST(fails_when_all_do)
{
    struct quern_context *ctx = test_open();
    struct quern_tune_result r;

    setenv("FAKE_NVRTC_REFUSE", "k_", 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_ECOMPILE,
                "k_small: k_small does not compile");
    quern_free(r.candidates);
    unsetenv("FAKE_NVRTC_REFUSE");
    setenv("FAKE_CUDA_TIMES", "k_small=fail,k_cluster=fail,k_large=fail", 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_ECUDA,
                "k_small: cuLaunchKernelEx");
    quern_free(r.candidates);
    test_expect_balance();
    /* a fault on the device is the end of the context */
    setenv("FAKE_CUDA_TIMES", "k_small=break", 1);
    test_expect(tune(ctx, PROBLEM, NULL, &r), QUERN_ECUDA, "after k_small");
    quern_free(r.candidates);
    test_expect_balance();
    qn_close(ctx);
}

static int tune_once(void)
{
    const struct qn_tune_options options = {.threads = 1};
    struct quern_context *ctx;
    struct qn_problem p;
    struct quern_tune_result r = {.candidates = NULL};
    int code = qn_open(NULL, &ctx);

    if (code)
        return code;
    code = qn_problem_parse(ctx, PROBLEM, &p);
    if (!code)
        code = qn_tune(ctx, &p, &options, &r);
    quern_free(r.candidates);
    qn_close(ctx);
    return code;
}

/* Each call once, and then all that follow; after the first 120, of which
   the rounds are made, every 29th. */
static void fail_calls(int lost)
{
    int last = 0;

    test_cuda->fail_code = 999;
    test_cuda->lost = lost;
    for (int n = 1;; n += n < 120 ? 1 : 29) {
        int code;

        test_cuda->calls = 0;
        test_cuda->fail_at = n;
        test_cuda->failed = NULL;
        code = tune_once();
        test_cuda->fail_at = 0;
        assert_int_equal(test_cuda->libraries, 0);
        test_expect_balance();
        test_cuda->primaries = 0; /* where its release failed */
        if (!test_cuda->failed)
            break;
        last = n;
        if (code) /* all candidates may have failed, one by one */
            test_expect(code,
                        code == QUERN_ECOMPILE ? QUERN_ECOMPILE : QUERN_ECUDA,
                        "the test's error (CUDA error 999)");
    }
    assert_true(last > 100);
    test_expect(tune_once(), QUERN_OK, "");
}

TEST(fails_each_driver_call)
{
    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    fail_calls(0);
    fail_calls(1);
}

TEST(fails_each_allocation)
{
    int last = 0;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    for (int n = 1;; n++) {
        int code, made;

        test_fail_allocation(n);
        code = tune_once();
        made = test_fail_allocation(0);
        assert_int_equal(test_cuda->libraries, 0);
        test_expect_balance();
        if (made < n) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        if (code && code != QUERN_ECOMPILE)
            test_expect(code, QUERN_ENOMEM, "host memory ran out");
    }
    assert_true(last > 30);
}

/* ------------------------------------------------------- the caller's words */

/* Runs get the caller's operands, and no memory is taken but for L2. */
TEST(measures_on_given_operands)
{
    struct quern_context *ctx = test_open();
    struct qn_args args = test_args(ctx, PROBLEM);
    const struct qn_tune_options options = {.args = &args};
    struct quern_tune_result r;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_cuda->param_sizes[4] = sizeof(void *);
    test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_OK, "");
    assert_memory_equal(test_cuda->params[4], &args.a.first_dims,
                        sizeof(void *));
    assert_int_equal(r.bytes, 8192);
    quern_free(r.candidates);
    *(unsigned *)args.workspace = 1; /* as a kernel reports a bad size */
    test_expect(tune(ctx, PROBLEM, &options, &r), QUERN_ESIZES, "negative");
    quern_free(r.candidates);
    test_expect_balance();
    test_args_free(&args);
    qn_close(ctx);
}

/* The lengths of the runs, here in host memory. */
TEST(draws_the_split)
{
    static const int64_t mine[] = {1, 2, 3, 500};
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, PROBLEM " split=200,0,37,300");
    const struct qn_tune_options given = {.sizes = mine};
    struct quern_tune_result r;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_cuda->watch = 4;
    test_expect(qn_tune(ctx, &p, NULL, &r), QUERN_OK, "");
    assert_int_equal(test_cuda->watched[0], 200);
    assert_int_equal(test_cuda->watched[2], 37);
    quern_free(r.candidates);
    test_expect(qn_tune(ctx, &p, &given, &r), QUERN_OK, "");
    assert_int_equal(test_cuda->watched[3], 500);
    quern_free(r.candidates);
    strcpy(p.split, "@/nonexistent");
    test_expect(qn_tune(ctx, &p, NULL, &r), QUERN_EINVAL, "/nonexistent");
    quern_free(r.candidates);
    qn_close(ctx);
}

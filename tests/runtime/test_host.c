/* SPDX-License-Identifier: Apache-2.0 */
/* test_host.c: the host backend: threads, parameters, kernels of a user's
   specs compiled by the system's compiler. */
#include "test.h"

#include <sys/resource.h>
#include <sys/wait.h>

static const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};

TEST(passes_parameters)
{
    const char *text = "fprop bf16 g=8 m=1000 n=510 k=250";
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, text, &host);
    struct qn_args args = test_args(ctx, text);

    args.d.stride = 512;
    args.d.bytes = 1024000;
    free(args.d.data);
    args.d.data = aligned_alloc(64, 1024000);
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_host.calls, 1);
    assert_ptr_equal(test_host.a, args.a.data);
    assert_ptr_equal(test_host.b, args.b.data);
    assert_ptr_equal(test_host.d, args.d.data);
    assert_int_equal(test_host.a_stride, 250);
    assert_int_equal(test_host.b_stride, 250);
    assert_int_equal(test_host.d_stride, 512);
    assert_ptr_equal(test_host.first_dims, args.a.first_dims);
    assert_null(test_host.offsets);
    assert_int_equal(test_host.sizes_bytes, 4);
    assert_int_equal(test_host.groups, 8);
    assert_int_equal(test_host.m, 1000);
    assert_int_equal(test_host.n, 510);
    assert_int_equal(test_host.k, 250);
    assert_ptr_equal(test_host.error, args.workspace);
    assert_int_equal(test_count("nvrtc"), 0);
    assert_int_equal(test_count("gen"), 0);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* Ragged k: D has the group axis, and A's arrays give the sizes of B too. */
TEST(takes_ragged_k)
{
    const char *text = "wgrad mixed g=3 m=16 n=24 k=100";
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, text, &host);
    struct qn_args args = test_args(ctx, text);

    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_host.a_stride, 16);
    assert_int_equal(test_host.b_stride, 24);
    assert_int_equal(test_host.d_stride, 24);
    assert_ptr_equal(test_host.first_dims, args.a.first_dims);
    args.b.first_dims = args.a.first_dims;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

TEST(counts_threads)
{
    static const char *const bad[] = {"0", "x", "257", "-1", "2x"};
    const char *text = "fprop bf16 g=8 m=1000 n=510 k=250";
    const struct qn_plan_options two = {.backend = QUERN_BACKEND_HOST,
                                        .sms = 2};
    struct quern_context *ctx;
    struct qn_plan *plan;
    struct quern_plan_info info;
    struct qn_problem p;

    setenv("QUERN_THREADS", "200", 1);
    ctx = test_open();
    plan = test_plan(ctx, text, &two);
    qn_plan_info(plan, &info);
    assert_int_equal(info.sms, 2);
    qn_plan_free(plan);
    qn_close(ctx);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("QUERN_THREADS", bad[i], 1);
        ctx = test_open();
        p = test_problem(ctx, text);
        test_expect(qn_plan(ctx, &p, &host, &plan), QUERN_EINVAL,
                    "a number from 1 to 256 is expected");
        qn_close(ctx);
    }
}

/* Run with or without threads; returns the workers that ran. */
static unsigned long long run_workers(int threads)
{
    const char *text = "fprop bf16 g=8 m=1000 n=510 k=250";
    const struct rlimit none = {0, 0};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, text, &host);
    struct qn_args args = test_args(ctx, text);

    if (!threads && ((geteuid() == 0 && setreuid(65534, 65534)) ||
                     setrlimit(RLIMIT_NPROC, &none)))
        return 0;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
    return test_host_workers;
}

/* If no thread can be started, the caller's does all the work. */
TEST(runs_all_workers)
{
    pid_t child;
    int status;

    setenv("QUERN_THREADS", "5", 1);
    assert_int_equal(run_workers(1), 31);
    test_host_workers = 0;
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(run_workers(0) == 31 ? 0 : 1);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

/* ----------------------------------------------------------- user's specs */

static int have_compiler(void)
{
    return system("cc --version >/dev/null 2>&1") == 0;
}

static struct quern_context *open_specs(void)
{
    const char *folders[] = {"specs"};
    const struct quern_open_options options = {.specs = folders,
                                               .specs_count = 1,
                                               .log = test_collect,
                                               .log_level = QUERN_LOG_DEBUG};
    struct quern_context *ctx;

    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    return ctx;
}

#define SPEC "fprop bf16 g=8 m=1000 n=1 k=8 d=f32"

static void run_spec(int workers)
{
    struct quern_context *ctx = open_specs();
    struct qn_plan *plan = test_plan(ctx, SPEC, &host);
    struct qn_args args = test_args(ctx, SPEC);
    const float *d = args.d.data;

    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    for (int i = 0; i < 1000; i++)
        assert_true(d[i] == (float)(i % workers + 1));
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

TEST(compiles_specs)
{
    if (!have_compiler())
        TEST_SKIP("a C compiler named cc");
    setenv("QUERN_THREADS", "7", 1);
    run_spec(7);
    assert_non_null(strstr(test_messages, "compiled k_spec"));
    test_messages[0] = 0;
    unlink(test_log);
    run_spec(7);
    assert_null(strstr(test_messages, "compiled k_spec"));
    assert_int_equal(test_count("gen source"), 1); /* for its key */
    /* a warm start needs no compiler; another compiler is another key */
    setenv("QUERN_CC", "/nonexistent/cc", 1);
    run_spec(7);
}

/* Linked kernels serve a registry that only repeats them. */
TEST(uses_linked_functions)
{
    const char *text = "fprop bf16 g=8 m=1000 n=510 k=250";
    struct quern_context *ctx = open_specs();
    struct qn_plan *plan = test_plan(ctx, text, &host);
    struct qn_args args = test_args(ctx, text);

    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_host.calls, 1);
    assert_int_equal(test_count("gen source"), 1); /* to compare its key */
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* A library that others may have written is not loaded, but made again. */
TEST(loads_only_its_own)
{
    char command[600];

    if (!have_compiler())
        TEST_SKIP("a C compiler named cc");
    setenv("QUERN_THREADS", "2", 1);
    run_spec(2);
    snprintf(command, sizeof command, "chmod 666 '%s'/entries/*/object",
             test_cache);
    assert_int_equal(system(command), 0);
    unlink(test_log);
    run_spec(2);
    assert_int_equal(test_count("gen source"), 2); /* key, compiler */
    if (geteuid())
        return;
    /* another's, even where everybody must trust him */
    snprintf(command, sizeof command, "chown 1 '%s'/entries/*/object",
             test_cache);
    assert_int_equal(system(command), 0);
    unlink(test_log);
    run_spec(2);
    assert_int_equal(test_count("gen source"), 2); /* key, compiler */
}

TEST(reports_compilers)
{
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    setenv("QUERN_CC", "/nonexistent/cc", 1);
    ctx = open_specs();
    p = test_problem(ctx, SPEC);
    test_expect(qn_plan(ctx, &p, &host, &plan), QUERN_EMISSING,
                "the C compiler '/nonexistent/cc' cannot be run");
    qn_close(ctx);
    setenv("QUERN_CC", "false", 1);
    ctx = open_specs();
    test_expect(qn_plan(ctx, &p, &host, &plan), QUERN_EMISSING,
                "'false --version' fails, so that it is no C compiler; set "
                "QUERN_CC\n  k_spec needs it");
    qn_close(ctx);
    unsetenv("QUERN_CC");
    if (!have_compiler())
        TEST_SKIP("a C compiler named cc");
    ctx = open_specs();
    p = test_problem(ctx, "dgrad bf16 g=8 m=1000 n=1 k=8 d=f32");
    test_expect(qn_plan(ctx, &p, &host, &plan), QUERN_ECOMPILE, "k_broken: ");
    test_expect(QUERN_ECOMPILE, QUERN_ECOMPILE, "error:");
    qn_close(ctx);
}

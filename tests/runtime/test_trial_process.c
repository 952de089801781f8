/* SPDX-License-Identifier: Apache-2.0 */
/* test_trial_process.c: when nothing is tried, what the program has of this
   process, and many processes and threads at once. */
#define _GNU_SOURCE
#include "trial_scene.h"

#include "code/cache.h"
#include "product/plan.h"

#include <pthread.h>
#include <signal.h>

/* -------------------------------------------------------------------- skips */

TEST(trial_skipped)
{
    static const struct qn_plan_options named = {.backend = QUERN_BACKEND_AOT,
                                                 .kernel = "n_next"};
    struct quern_context *ctx;

    write_checker(WRONG, WRONG, WRONG, WRONG);
    setenv("QUERN_TRUST", "compiled", 1);
    expect("n_best", "", "");
    setenv("QUERN_TRUST", "interpreted", 1);
    ctx = open_trial();
    forget_tried();
    test_expect_choice(ctx, P, &named, "n_next", QUERN_BACKEND_AOT, 148);
    assert_string_equal(read_file("tried"), "");
    qn_close(ctx);
    setenv("QUERN_TRUST", "ran", 1);
    test_expect(qn_open(NULL, &ctx), QUERN_EINVAL,
                "QUERN_TRUST=ran: compiled, interpreted or run is expected; "
                "did you mean 'run'?");
}

/* A kernel of evidence, and a GPU on which the suite ran. */
TEST(trial_of_evidence)
{
    struct qn_kernel copy[4];
    struct quern_registry other = registry;
    const struct quern_open_options options = {.registry = &other};
    struct quern_context *ctx;

    write_checker(WRONG, WRONG, WRONG, WRONG);
    memcpy(copy, kernels, sizeof copy);
    copy[0].ran = 1 << QN_SM_100;
    other.kernels = copy;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    test_expect_choice(ctx, P, &aot, "n_best", QUERN_BACKEND_AOT, 148);
    qn_close(ctx);
    copy[0].ran = 0;
    copy[0].interpreted = 1;
    setenv("QUERN_TRUST", "interpreted", 1);
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    test_expect_choice(ctx, P, &aot, "n_best", QUERN_BACKEND_AOT, 148);
    qn_close(ctx);
    setenv("QUERN_TRUST", "run", 1);
    copy[0].arch = "sm_90a";
    test_cuda->major = 9;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    test_expect_choice(ctx, P, &aot, "n_best", QUERN_BACKEND_AOT, 148);
    qn_close(ctx);
    assert_string_equal(read_file("tried"), "");
}

/* Plans cannot be made there, so nothing is tried. */
TEST(trial_in_capture)
{
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    ctx = open_trial();
    p = test_problem(ctx, P);
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_plan(ctx, &p, &aot, &plan), QUERN_ECAPTURE,
                "making a plan is not allowed while a stream captures");
    assert_string_equal(read_file("tried"), "");
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    test_expect_choice(ctx, P, &aot, "n_best", QUERN_BACKEND_AOT, 148);
    qn_close(ctx);
}

/* ------------------------------------------------------------------ process */

/* Variables and arguments, and nothing of this process. */
TEST(trial_surroundings)
{
    const char *text;

    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    setenv("LD_PRELOAD_", "1", 1);
    setenv("CUDA_INJECTION64_PATH", "/tmp/evil.so", 1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps", 1);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    expect("n_best", "n_best\n", "tried");
    unsetenv("LD_PRELOAD_");
    unsetenv("CUDA_INJECTION64_PATH");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_VISIBLE_DEVICES");
    text = read_file("environment");
    assert_null(strstr(text, "LD_PRELOAD"));
    assert_null(strstr(text, "INJECTION"));
    assert_null(strstr(text, "FAKE_LOG"));
    assert_null(strstr(text, "\nHOME="));
    assert_non_null(strstr(text, "PATH=/usr/local/bin:/usr/bin:/bin\n"));
    assert_non_null(strstr(text, "QUERN_TRUST=compiled\n"));
    assert_non_null(strstr(text, "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps\n"));
    assert_non_null(strstr(text, "CUDA_VISIBLE_DEVICES=0\n"));
    assert_non_null(strstr(text, "/fake_cuda.so\n"));
    assert_string_equal(read_file("arguments"),
                        ".trial " QUERN_VERSION
                        " n_best 37,0,128,129,1,129 0,100 0.3 fprop "
                        "bf16 g=6 m=512 n=528 k=400 d=bf16\n");
}

static void ignore(int number)
{
    (void)number;
}

/* Handlers stay as they are, and SIGCHLD may be anything. */
TEST(trial_signals)
{
    static const int numbers[] = {SIGCHLD, SIGALRM, SIGPIPE, SIGTERM};
    struct sigaction before[4], after, chosen = {.sa_handler = SIG_IGN};

    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    for (int i = 0; i < 4; i++)
        sigaction(numbers[i], NULL, &before[i]);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    for (int i = 0; i < 4; i++) {
        sigaction(numbers[i], NULL, &after);
        assert_ptr_equal(after.sa_handler, before[i].sa_handler);
    }
    test_wipe();
    sigaction(SIGCHLD, &chosen, NULL);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    test_wipe();
    chosen.sa_handler = ignore;
    sigaction(SIGCHLD, &chosen, NULL);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    sigaction(SIGCHLD, &before[0], NULL);
}

/* The files that a caller has closed are not taken for the program's. */
TEST(trial_without_standard_files)
{
    struct quern_context *ctx;
    int saved[3];

    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    for (int i = 0; i < 3; i++) {
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
        close(i);
    }
    ctx = open_trial();
    test_expect_choice(ctx, P, &aot, "n_best", QUERN_BACKEND_AOT, 148);
    qn_close(
        ctx); /* before the others come back: it has files of these numbers */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dup2(saved[i], i), i);
        close(saved[i]);
    }
}

/* -------------------------------------------------------------------- crowd */

TEST(trial_of_processes)
{
    enum { CROWD = 6 };
    pid_t children[CROWD];

    write_checker(WRONG, "sleep 0.1; " RIGHT, RIGHT, RIGHT);
    fflush(NULL);
    for (int i = 0; i < CROWD; i++) {
        children[i] = test_fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct quern_context *ctx = open_trial();

            test_expect_choice(ctx, P, &aot, "n_next", QUERN_BACKEND_AOT, 148);
            qn_close(ctx);
            _exit(0);
        }
    }
    for (int i = 0; i < CROWD; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_string_equal(read_file("tried"), "n_best\nn_next\n");
}

static void *plan_one(void *user)
{
    struct qn_problem p;
    struct qn_plan *plan;

    if (qn_problem_parse(user, P, &p) || qn_plan(user, &p, &aot, &plan))
        return user;
    qn_plan_free(plan);
    return NULL;
}

TEST(trial_of_threads)
{
    enum { CROWD = 6 };
    pthread_t threads[CROWD];
    struct quern_context *ctx;
    void *failed;

    setenv("QUERN_CACHE", "", 1);
    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    ctx = open_trial();
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, plan_one, ctx), 0);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_string_equal(read_file("tried"), "n_best\nn_next\n");
    qn_close(ctx);
}

/* Each allocation of a plan fails once: memory ran out, or a kernel that cannot
   be tried is not used. */
TEST(trial_without_memory)
{
    int done = 0;

    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    for (int n = 1; !done; n++) {
        struct quern_context *ctx = open_trial();
        struct qn_problem p = test_problem(ctx, P);
        struct quern_plan_info info;
        struct qn_plan *plan = NULL;
        int code;

        test_wipe();
        test_fail_allocation(n);
        code = qn_plan(ctx, &p, &aot, &plan);
        done = test_fail_allocation(0) < n;
        assert_true(code == QUERN_OK || code == QUERN_ENOMEM);
        if (!code) {
            qn_plan_info(plan, &info);
            assert_string_not_equal(info.kernel, "n_best");
        }
        qn_plan_free(plan);
        qn_close(ctx);
        assert_true(n < 500);
    }
}

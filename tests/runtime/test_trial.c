/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_trial.c: kernels on a GPU on which they never ran.
**
** A shell's script stands for the program that tries them; it appends the name
** of each kernel to $FOLDER/tried. The program itself is tested in
** tests/cli/trial_test.c.
*/
#define _GNU_SOURCE
#include "test.h"

#include "base/context.h"
#include "choose/session.h"
#include "choose/trial.h"
#include "code/cache.h"
#include "product/plan.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define P       "fprop bf16 g=8 m=32768 n=4096 k=4096"
#define RIGHT   "echo ready; echo right; echo ."
#define WRONG   "echo ready; echo 'wrong error 1 in a row'; echo ."
#define LATE    "echo ready; exec sleep 100"
#define STUCK   "exec sleep 100"
#define FAILED  "echo ready; echo 'failed signal 11'; echo ."
#define CRASHED "echo ready; kill -SEGV $$"
#define UNABLE  "echo 'unable out of memory'; echo ."
#define NOTHING "exit 1"

static const unsigned char plain_params[] = {HOST_PARAMS};

#define LINKED .cubin = "\177ELF", .cubin_bytes = 4
#define KERNEL(symbol, arch_, m_, n_, schedule_, stages_, params_)             \
    {                                                                          \
        .name = symbol, .spec = "kernels/test.lua:1",                          \
        .template_path = "test.cu", .key = "key_of_" symbol, .recipe = "bf16", \
        .arch = arch_, .op = QUERN_FPROP, .ragged = QUERN_AXIS_M,              \
        .a = {QUERN_BF16, QUERN_MAJOR_K, QUERN_AXIS_M, {64, m_}, 128, {0}},    \
        .b = {QUERN_BF16, QUERN_MAJOR_K, QUERN_AXIS_NONE, {64, n_}, 128, {0}}, \
        .d = {QUERN_BF16, QUERN_MAJOR_K, QUERN_AXIS_M, {64, 16}, 128, {0}},    \
        .tile = {m_, n_, 64}, .cluster = {1, 1}, .stages = stages_,            \
        .schedule = schedule_, .addend = "none", .threads = 384,               \
        .smem = 50000, .params = params_, .nparams = sizeof params_,           \
        .rules = gpu_requires, .nrules = 1, LINKED                             \
    }
#define NATIVE(symbol, n_)                                                     \
    KERNEL(symbol, "sm_100a", 128, n_, "cooperative", 4, gpu_params)
#define PLAIN(symbol, n_)                                                      \
    KERNEL(symbol, "sm_100f", 128, n_, "", 0, plain_params)

/* In the model's order. */
static const struct qn_kernel kernels[] = {
    NATIVE("n_best", 256),
    NATIVE("n_next", 192),
    PLAIN("p_best", 128),
    PLAIN("p_next", 64),
};
static const struct quern_registry registry = {
    .hash = "trial",
    .recipes = test_recipes,
    .nrecipes = sizeof test_recipes / sizeof test_recipes[0],
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof kernels[0]};

/* ------------------------------------------------------------------ support */

/* A script, by its commands for each kernel. */
static void write_checker(const char *n_best, const char *n_next,
                          const char *p_best, const char *p_next)
{
    char path[300];
    FILE *file;

    snprintf(path, sizeof path, "%s/checker", test_folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "#!/bin/sh\necho \"$3\" >> %s/tried\nenv > %s/environment\n"
            "echo \"$@\" > %s/arguments\ncase $3 in\nn_best) %s;;\n"
            "n_next) %s;;\np_best) %s;;\np_next) %s;;\nesac\n",
            test_folder, test_folder, test_folder, n_best, n_next, p_best,
            p_next);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("QUERN_CHECKER", path, 1);
    setenv("QUERN_TRUST", "run", 1);
    test_cuda->major = 10;
    test_cuda->sms = 148;
}

/* A file of the test's folder; "" without one. */
static const char *read_file(const char *name)
{
    static char text[8192];
    char path[300];
    size_t length = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    file = fopen(path, "r");
    if (file) {
        length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[length] = 0;
    return text;
}

static void forget_tried(void)
{
    char path[300];

    snprintf(path, sizeof path, "%s/tried", test_folder);
    unlink(path);
}

static struct quern_context *open_trial(void)
{
    const struct quern_open_options options = {.registry = &registry,
                                               .log = test_collect,
                                               .log_level = QUERN_LOG_INFO};
    struct quern_context *ctx;

    *test_messages = 0;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    ctx->trial_seconds = 0.3;
    return ctx;
}

static const struct qn_plan_options aot = {.backend = QUERN_BACKEND_AOT};

/* Files that this process has open. */
static int count_open(void)
{
    int count = 0;

    for (int file = 0; file < 256; file++)
        count += fcntl(file, F_GETFD) >= 0;
    return count;
}

/* The kernel of a plan of a new context, the kernels that were tried for it,
   and a part of the log ("": it is empty). */
static void expect(const char *kernel, const char *tried, const char *log)
{
    const int files = count_open();
    struct quern_context *ctx = open_trial();

    forget_tried();
    test_expect_choice(ctx, P, &aot, kernel, QUERN_BACKEND_AOT, 148);
    assert_string_equal(read_file("tried"), tried);
    if (*log ? !strstr(test_messages, log) : *test_messages != 0)
        fail_msg("log: %s\nlacks: %s", test_messages, log);
    qn_close(ctx);
    assert_int_equal(count_open(), files);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD); /* no child is left */
}

/* The same in a context that knows nothing, and then one of another process,
   which has the cache. */
static void expect_twice(const char *kernel, const char *tried, const char *log,
                         int kept)
{
    expect(kernel, tried, log);
    expect(kernel, kept ? "" : tried,
           kept && !strstr(log, "serves") ? "" : log);
}

/* ----------------------------------------------------------------- outcomes */

TEST(trial_right)
{
    write_checker(RIGHT, WRONG, WRONG, WRONG);
    expect_twice("n_best", "n_best\n", "tried n_best on this GPU", 1);
    assert_int_equal(test_count_files("entries"), 1);
    assert_int_equal(test_verify(), 0); /* an entry as any other */
}

TEST(trial_wrong)
{
    write_checker(WRONG, RIGHT, WRONG, WRONG);
    expect_twice("n_next", "n_best\nn_next\n",
                 "n_best is not used: tried on this GPU, wrong: error 1 in a "
                 "row; n_next serves instead",
                 1);
}

TEST(trial_late)
{
    write_checker(LATE, LATE, RIGHT, WRONG);
    expect_twice("p_best", "n_best\nn_next\np_best\n",
                 "n_best is not used: tried on this GPU, late: it had not "
                 "ended after 0 s; p_best serves instead",
                 1);
}

TEST(trial_crashed)
{
    write_checker(CRASHED, FAILED, RIGHT, WRONG);
    expect_twice("p_best", "n_best\nn_next\np_best\n",
                 "tried on this GPU, failed: the program that tried it ended "
                 "early; p_best serves instead",
                 1);
}

/* Nothing runs: mma.sync as before, untried, and nothing is kept. */
TEST(trial_unable)
{
    write_checker(UNABLE, NOTHING, STUCK, WRONG);
    expect_twice("p_best", "n_best\nn_next\np_best\n",
                 "n_best is not used: it never ran on such a GPU and cannot be "
                 "tried here (out of memory); p_best serves instead",
                 0);
}

TEST(trial_missing)
{
    static const struct {
        const char *checker;
        const char *says;
    } rows[] = {
        {"/nonexistent/quern", "is not installed with the library"},
        {"/etc/passwd", "is not installed with the library"},
        {"/", "cannot be started: Permission denied"},
    };

    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    for (int i = 0; i < 3; i++) {
        setenv("QUERN_CHECKER", rows[i].checker, 1);
        expect("p_best", "", rows[i].says);
    }
}

TEST(trial_without_processes)
{
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    test_system.no_spawn = EAGAIN;
    expect("p_best", "", "cannot be started: Resource temporarily unavailable");
    test_system.no_spawn = 0;
    expect("n_best", "n_best\n", "tried n_best");
}

/* A kernel of mma.sync that was wrong never runs; one that was late may. */
TEST(trial_last_resort)
{
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    write_checker(WRONG, WRONG, LATE, WRONG);
    expect("p_best", "n_best\nn_next\np_best\np_next\n",
           "n_best is not used: tried on this GPU, wrong: error 1 in a row; "
           "p_best serves instead");
    test_wipe();
    write_checker(UNABLE, UNABLE, UNABLE, WRONG);
    expect("p_best", "n_best\nn_next\np_best\n", "p_best serves instead");
    write_checker(WRONG, WRONG, WRONG, WRONG);
    ctx = open_trial();
    p = test_problem(ctx, P);
    test_expect(qn_plan(ctx, &p, &aot, &plan), QUERN_ENOKERNEL,
                "p_next is not used: tried on this GPU, wrong: error 1 in a "
                "row; QUERN_TRUST=compiled uses it");
    qn_close(ctx);
}

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
    int saved[3];

    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    for (int i = 0; i < 3; i++) {
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
        close(i);
    }
    test_expect_choice(open_trial(), P, &aot, "n_best", QUERN_BACKEND_AOT, 148);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dup2(saved[i], i), i);
        close(saved[i]);
    }
}

/* -------------------------------------------------------------------- cache */

static void damage(void)
{
    test_shell("for f in %s/entries/*/object; do chmod u+w $f; echo right 1 "
               "> $f; done");
}

TEST(trial_poisoned)
{
    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    damage(); /* by words that a sum does not cover */
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    /* of others' folders nothing is believed */
    expect("n_next", "", "n_next serves");
    test_shell("chmod go+w %s");
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    test_shell("chmod go-w %s");
    expect("n_next", "", "n_next serves");
}

/* Another driver, another GPU, and a day later, if it was late. */
TEST(trial_expires)
{
    write_checker(LATE, RIGHT, RIGHT, RIGHT);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    expect("n_next", "", "n_next serves");
    test_system.clock = 25 * 3600;
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    expect("n_best", "n_best\n", "tried n_best");
    test_system.clock = 3000L * 24 * 3600;
    expect("n_best", "", "");
    test_cuda->version = 13010;
    expect("n_best", "n_best\n", "tried n_best");
    test_cuda->minor = 3;
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    expect("p_best", "p_best\n", "tried p_best"); /* sm_100a is not its */
}

TEST(trial_without_cache)
{
    struct quern_context *ctx;

    setenv("QUERN_CACHE", "", 1);
    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    ctx = open_trial();
    for (int i = 0; i < 3; i++)
        test_expect_choice(ctx, P, &aot, "n_next", QUERN_BACKEND_AOT, 148);
    assert_string_equal(read_file("tried"), "n_best\nn_next\n");
    assert_null(strstr(strstr(test_messages, "serves") + 1, "serves"));
    qn_close(ctx);
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

/* --------------------------------------------------------------------- tune */

/* The tuner measures no kernel that is not right. */
TEST(trial_of_tuner)
{
    static const struct qn_tune_options options = {.backend =
                                                       QUERN_BACKEND_AOT};
    struct quern_tune_result r;
    struct quern_context *ctx;
    struct qn_problem p;
    int seen = 0;

    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    setenv("FAKE_CUDA_TIMES", "n_best=50,n_next=80,p_best=200,p_next=300", 1);
    ctx = open_trial();
    p = test_problem(ctx, "fprop bf16 g=4 m=8192 n=1024 k=256");
    test_expect(qn_tune(ctx, &p, &options, &r), QUERN_OK, "");
    assert_string_equal(r.kernel, "n_next");
    for (int i = 0; i < r.count; i++)
        seen += !strcmp(r.candidates[i].kernel, "n_best") &&
                strstr(r.candidates[i].reason,
                       "tried on this GPU, wrong: error 1 in a row") != NULL;
    assert_true(seen);
    qn_free(r.candidates);
    qn_close(ctx);
}

/* ---------------------------------------------------------------------- why */

static void expect_why(struct quern_context *ctx, const char *part)
{
    struct qn_problem p = test_problem(ctx, P);
    char *why;

    test_expect(qn_why(ctx, &p, &aot, &why), QUERN_OK, "");
    if (!strstr(why, part))
        fail_msg("lacks '%s':\n%s", part, why);
    qn_free(why);
}

TEST(trial_explained)
{
    struct quern_context *ctx;

    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    ctx = open_trial();
    expect_why(ctx, "its first use on such a GPU is tried by a program of its "
                    "own");
    expect_why(ctx, "> n_best (linked)\n");
    assert_string_equal(read_file("tried"), ""); /* explanations try nothing */
    test_expect_choice(ctx, P, &aot, "n_next", QUERN_BACKEND_AOT, 148);
    expect_why(ctx, "tried on this GPU\n  n_next: right\n"
                    "  n_best: wrong: error 1 in a row\n");
    expect_why(ctx, "n_best\n    tried on this GPU, wrong: error 1 in a row");
    expect_why(ctx, "> n_next (linked)\n");
    qn_close(ctx);
    ctx = open_trial(); /* of the cache */
    expect_why(ctx, "tried on this GPU\n  n_next: right\n"
                    "  n_best: wrong: error 1 in a row\n");
    expect_why(ctx, "n_best\n    tried on this GPU, wrong: error 1 in a row");
    expect_why(ctx, "> n_next (linked)\n");
    qn_close(ctx);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_shared.c: the cache among plans, threads and processes. */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct qn_plan_options small = {.kernel = "k_small"};

/* Also where somebody else has the generator loaded. */
TEST(warm_start_opens_nothing)
{
    void *loaded = dlopen(getenv("QUERN_GEN"), RTLD_NOW | RTLD_LOCAL);

    assert_non_null(loaded);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("gen open"), 1);
    assert_int_equal(test_count("nvrtc open"), 1);
    assert_int_equal(test_count("nvrtc compile"), 1);
    unlink(test_log);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count(""), 0);
    /* not even where neither exists */
    setenv("QUERN_GEN", "/nonexistent", 1);
    setenv("QUERN_NVRTC", "/nonexistent", 1);
    assert_int_equal(test_plan_once(), QUERN_OK);
    dlclose(loaded);
}

/* Without the index the entry is found by its key; the generator stays shut. */
TEST(finds_entries_without_index)
{
    char command[600];

    assert_int_equal(test_plan_once(), QUERN_OK);
    unlink(test_log);
    snprintf(command, sizeof command, "rm '%s'/index/*", test_cache);
    assert_int_equal(system(command), 0);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc open"), 1);
    assert_int_equal(test_count("nvrtc compile"), 0);
    assert_int_equal(test_count("gen"), 0);
    unlink(test_log);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count(""), 0);
}

TEST(compiles_for_each_compiler)
{
    char command[600];

    assert_int_equal(test_plan_once(), QUERN_OK);
    snprintf(command, sizeof command, "rm '%s'/index/*", test_cache);
    assert_int_equal(system(command), 0);
    setenv("FAKE_NVRTC_VERSION", "1", 1);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc compile"), 2);
}

TEST(rebuilds_damage)
{
    static const char *const damages[] = {
        "truncate -s 3 '%s'/entries/*/object",
        "printf x | dd of=$(ls '%s'/entries/*/object) conv=notrunc status=none",
        "rm '%s'/entries/*/sums",
        "rm -r '%s'/entries/*",
    };
    char command[600];

    assert_int_equal(test_plan_once(), QUERN_OK);
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command, damages[i], test_cache);
        assert_int_equal(system(command), 0);
        assert_int_equal(test_plan_once(), QUERN_OK);
        assert_int_equal(test_count("nvrtc compile"), i + 2);
        assert_int_equal(test_plan_once(), QUERN_OK);
        assert_int_equal(test_count("nvrtc compile"), i + 2);
    }
}

/* ------------------------------------------------------------------- races */

#define RACERS 6

TEST(one_compile_among_processes)
{
    pid_t children[RACERS];

    setenv("FAKE_NVRTC_DELAY", "200", 1);
    for (int i = 0; i < RACERS; i++) {
        children[i] = test_fork();
        if (children[i] == 0)
            _exit(test_plan_once());
    }
    for (int i = 0; i < RACERS; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(test_count("nvrtc compile"), 1);
}

static void *plan_in_thread(void *user)
{
    struct quern_context *ctx = user;
    struct qn_problem p;
    struct qn_plan *plan = NULL;
    int code = qn_problem_parse(ctx, TEST_PLAN, &p);

    if (!code)
        code = qn_plan(ctx, &p, &small, &plan);
    qn_plan_free(plan);
    return (void *)(intptr_t)code;
}

static void race_threads(const char *cache)
{
    const struct quern_open_options options = {.cache = cache};
    struct quern_context *ctx;
    pthread_t threads[RACERS];

    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, plan_in_thread, ctx),
                         0);
    for (int i = 0; i < RACERS; i++) {
        void *code;

        pthread_join(threads[i], &code);
        assert_null(code);
    }
    assert_int_equal(test_cuda->libraries, 1);
    qn_close(ctx);
}

TEST(one_compile_among_threads)
{
    setenv("FAKE_NVRTC_DELAY", "100", 1);
    race_threads(NULL);
    assert_int_equal(test_count("nvrtc compile"), 1);
    race_threads("");
    assert_int_equal(test_count("nvrtc compile"), 2);
}

TEST(killed_compiles_leave_nothing)
{
    pid_t child;
    int status;

    setenv("FAKE_NVRTC_DELAY", "10000", 1);
    child = test_fork();
    if (child == 0)
        _exit(test_plan_once());
    for (int i = 0; i < 500 && !test_count("nvrtc compile"); i++)
        usleep(10000);
    assert_int_equal(test_count("nvrtc compile"), 1);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    unsetenv("FAKE_NVRTC_DELAY");
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc compile"), 2);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc compile"), 2);
}

/* Killed at any moment, also while the entry is being written. */
TEST(kills_at_any_moment)
{
    for (int i = 0; i < 40; i++) {
        char command[600];
        pid_t child;
        int status;

        child = test_fork();
        if (child == 0)
            _exit(test_plan_once());
        usleep((useconds_t)(i * 150));
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_int_equal(test_plan_once(), QUERN_OK);
        snprintf(command, sizeof command,
                 "test \"$(cat '%s'/entries/*/object | tr -d '\\0')\" = "
                 "'cubin of k_small.cu'",
                 test_cache);
        assert_int_equal(system(command), 0);
        snprintf(command, sizeof command, "rm -r '%s'", test_cache);
        assert_int_equal(system(command), 0);
    }
}

/* ---------------------------------------------------------------- no cache */

TEST(works_uncached)
{
    const struct quern_open_options options = {.cache = "/proc/nothing",
                                               .log = test_collect,
                                               .log_level = QUERN_LOG_INFO};
    struct quern_context *ctx;
    struct qn_plan *plan;
    const char *said;

    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    plan = test_plan(ctx, TEST_PLAN, &small);
    qn_plan_free(plan);
    plan = test_plan(ctx, TEST_PLAN, NULL);
    qn_plan_free(plan);
    qn_close(ctx);
    said = strstr(test_messages, "no folder of the cache may be written");
    assert_non_null(said);
    assert_null(strstr(said + 1, "no folder of the cache"));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_crowd.c: 64 processes that start cold on one cache, with locks, without,
** and while some of them are killed.
**
**     QUERN_SOAK=SECONDS build/bin/test_runtime    goes on for so long, other
**                                                  moments each time
*/
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { CROWD = 64 };

static uint64_t seed;
static int two_versions; /* every other process has another compiler */

static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

/* All plan at once; each `every`-th is killed within `most` microseconds (0: of
   them none). Returns how many were. */
static int run_crowd(int every, unsigned most)
{
    pid_t children[CROWD];
    int killed = 0;

    fflush(NULL);
    for (int i = 0; i < CROWD; i++) {
        children[i] = test_fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            if (two_versions && i % 2)
                setenv("FAKE_NVRTC_VERSION", "7", 1);
            _exit(test_plan_once());
        }
    }
    for (int i = 0; every && i < CROWD; i += every) {
        usleep(draw(most));
        kill(children[i], SIGKILL);
    }
    for (int i = 0; i < CROWD; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (every && i % every == 0 && WIFSIGNALED(status))
            killed++;
        else
            assert_int_equal(status, 0);
    }
    return killed;
}

/* One entry that is whole, and nothing in the making but what was killed. */
static void check_after(int killed)
{
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count_files("entries"), 1);
    assert_true(test_count_files("new") <= killed);
    if (test_verify())
        fail_msg("%s", test_faults);
}

TEST(compiles_once)
{
    setenv("FAKE_NVRTC_DELAY", "50", 1);
    run_crowd(0, 0);
    assert_int_equal(test_count("nvrtc compile"), 1);
    check_after(0);
    assert_int_equal(test_count("nvrtc compile"), 1);
}

TEST(repairs_once)
{
    assert_int_equal(test_plan_once(), QUERN_OK);
    test_shell("truncate -s 3 '%s'/entries/*/object");
    setenv("FAKE_NVRTC_DELAY", "50", 1);
    run_crowd(0, 0);
    assert_int_equal(test_count("nvrtc compile"), 2);
    assert_int_equal(test_count_files("damaged"), 1);
    check_after(0);
}

TEST(works_without_locks)
{
    test_system.no_locks = 1;
    setenv("FAKE_NVRTC_DELAY", "5", 1);
    run_crowd(0, 0);
    assert_in_range(test_count("nvrtc compile"), 1, CROWD);
    check_after(0);
    unlink(test_log);
    /* damage is replaced all the same, by one that is as good as another */
    test_shell("truncate -s 3 '%s'/entries/*/object");
    run_crowd(0, 0);
    assert_in_range(test_count("nvrtc compile"), 1, CROWD);
    check_after(0);
    unlink(test_log);
    run_crowd(0, 0);
    assert_int_equal(test_count("nvrtc compile"), 0);
}

/* Each that is killed may have been compiling. */
TEST(survives_kills)
{
    const char *soak = getenv("QUERN_SOAK");
    const time_t end = time(NULL) + (soak ? atol(soak) : 0);

    seed = soak ? (uint64_t)time(NULL) : 1;
    setenv("FAKE_NVRTC_DELAY", "5", 1);
    do
        for (int locks = 0; locks < 2; locks++) {
            int killed;

            test_system.no_locks = !locks;
            killed = run_crowd(3, 4000);
            if (locks)
                assert_true(test_count("nvrtc compile") <= 1 + killed);
            check_after(killed);
            test_wipe();
            unlink(test_log);
        }
    while (time(NULL) < end);
}

/* Two builds whose compilers differ have an entry each, or the first one's
   serves both. */
TEST(serves_two_versions)
{
    int compiles;

    setenv("FAKE_NVRTC_DELAY", "5", 1);
    two_versions = 1;
    run_crowd(0, 0);
    two_versions = 0;
    compiles = test_count("nvrtc compile");
    assert_in_range(compiles, 1, 2);
    assert_int_equal(test_count_files("entries"), compiles);
    assert_int_equal(test_verify(), 0);
}

/* ------------------------------------------------------------------- locks */

/* Who is stopped with a lock in hand must not stop the others for ever. */
TEST(gives_up_waiting)
{
    pid_t child;
    int status;

    setenv("FAKE_NVRTC_DELAY", "100000", 1);
    fflush(NULL);
    child = test_fork();
    if (child == 0)
        _exit(test_plan_once());
    while (!test_count("nvrtc compile"))
        usleep(1000);
    kill(child, SIGSTOP);
    unsetenv("FAKE_NVRTC_DELAY");
    test_system.no_waiting = 1;
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc compile"), 2);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_int_equal(test_verify(), 0);
}

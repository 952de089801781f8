/* SPDX-License-Identifier: Apache-2.0 */
/* test_calls.c: the cache when calls of the kernel fail, one after the other,
   when the process ends at any of them, and when the disk is full. A plan must
   come out right each time, and what is left after must be whole. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

/* Whole, and good for a warm start. */
static void check_after(void)
{
    assert_int_equal(test_plan_once(), QUERN_OK);
    if (test_verify())
        fail_msg("%s", test_faults);
    unlink(test_log);
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc compile"), 0);
    assert_int_equal(test_count_files("entries"), 1);
}

/* Fail the n-th call; 0 if there are not so many. */
static int fail_call(int n, int error)
{
    int code, calls;

    test_system =
        (struct test_system){.armed = 1, .fail_at = n, .error = error};
    code = test_plan_once();
    calls = test_system.calls;
    memset(&test_system, 0, sizeof test_system);
    if (code != QUERN_OK)
        fail_msg("call %d, %s: %s", n, strerror(error), quern_errmsg());
    return calls >= n;
}

static void fail_each(int warm)
{
    static const int errors[] = {EIO, ENOSPC, EMFILE, EACCES, ENOENT, EEXIST};

    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        int n = 0, more;

        do {
            if (warm)
                check_after();
            more = fail_call(++n, errors[i]);
            check_after();
            if (!warm)
                test_wipe();
        } while (more);
        assert_true(n > 10);
    }
}

TEST(fails_each_call_cold)
{
    fail_each(0);
}

TEST(fails_each_call_warm)
{
    fail_each(1);
}

/* End at the n-th call; 0 if there are not so many. */
static int kill_call(int n)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = test_fork();
    if (child == 0) {
        test_system = (struct test_system){.armed = 1, .kill_at = n};
        _exit(test_plan_once());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(status == 0 ||
                (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return status != 0;
}

TEST(ends_at_each_call)
{
    int n = 0, more;

    do {
        more = kill_call(++n);
        check_after();
        test_wipe();
    } while (more);
    assert_true(n > 30);
}

/* A file that blocks later processes is not theirs. */
TEST(ends_at_each_call_while_repairing)
{
    int n = 0, more;

    do {
        assert_int_equal(test_plan_once(), QUERN_OK);
        test_shell("truncate -s 3 '%s'/entries/*/object");
        assert_int_equal(test_verify(), 1);
        more = kill_call(++n);
        check_after();
        test_wipe();
    } while (more);
    assert_true(n > 30);
}

/* A plan while so many bytes fit; returns how many are left. */
static int fill_disk(int space)
{
    int left;

    test_messages[0] = 0;
    test_system = (struct test_system){.armed = 1, .full = 1, .space = space};
    assert_int_equal(test_plan_once(), QUERN_OK);
    left = test_system.space;
    memset(&test_system, 0, sizeof test_system);
    return left;
}

TEST(fills_the_disk)
{
    int space = 0, left;

    do {
        left = fill_disk(space);
        if (test_count_files("entries") == 0)
            assert_non_null(strstr(test_messages,
                                   "keeps nothing more (No space left on "
                                   "device)"));
        assert_int_equal(test_verify(), 0);
        assert_int_equal(test_count_files("new"), 0);
        check_after();
        test_wipe();
        space += 7;
    } while (left == 0);
    assert_true(space > 500);
}

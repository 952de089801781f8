/*
** SPDX-License-Identifier: Apache-2.0
** cases.h: tests that register themselves, and cmocka with its includes.
**
**     TEST(adds_up)
**     {
**         assert_int_equal(1 + 1, 2);
**     }
**
** A test's name is FILE:NAME, as in "sums.c:adds_up". A program that defines
** TEST_SETUP and TEST_TEARDOWN before has them run around each test. TEST_ONCE
** instead of TEST: without a list of cases, and too long to run again in each
** share (share.h), so in the first only.
*/
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "share.h"

#ifndef TEST_SETUP
#define TEST_SETUP    NULL
#define TEST_TEARDOWN NULL
#endif

enum { TEST_MOST = 512 };

/* One list in each program, in the order of files and of their tests. */
__attribute__((weak)) struct CMUnitTest test_cases[TEST_MOST];
__attribute__((weak)) size_t test_ncases;
__attribute__((weak)) char test_once; /* its address marks those */

static inline void test_add(struct CMUnitTest test)
{
    const char *folder = strrchr(test.name, '/');

    if (test_ncases == TEST_MOST)
        abort();
    if (folder)
        test.name = folder + 1;
    test_cases[test_ncases++] = test;
}

/* Sort files by name; the linker's order is any. */
static inline void test_sort(void)
{
    for (size_t i = 1; i < test_ncases; i++)
        for (size_t j = i; j > 0; j--) {
            const struct CMUnitTest last = test_cases[j];
            const char *before = test_cases[j - 1].name;

            if (strncmp(before, last.name, strcspn(before, ":") + 1) <= 0)
                break;
            test_cases[j] = test_cases[j - 1];
            test_cases[j - 1] = last;
        }
}

/* Those of the first share only, by their mark, which goes. */
static inline void test_leave_out(void)
{
    size_t kept = 0;

    for (size_t i = 0; i < test_ncases; i++) {
        const int once = test_cases[i].initial_state == &test_once;

        test_cases[kept] = test_cases[i];
        test_cases[kept].initial_state = NULL;
        kept += !once || share_is_first();
    }
    test_ncases = kept;
}

/* Run the tests whose names match `pattern`, all if NULL. How many failed. */
static inline int test_run(const char *group, const char *pattern,
                           CMFixtureFunction setup, CMFixtureFunction teardown)
{
    int failed;

    if (share_open())
        return -1;
    test_sort();
    test_leave_out();
    if (pattern)
        cmocka_set_test_filter(pattern);
    failed = _cmocka_run_group_tests(group, test_cases, test_ncases, setup,
                                     teardown);
    share_print();
    return failed;
}

#define TEST_MARKED(name, mark)                                                \
    static void name(void **);                                                 \
    __attribute__((constructor)) static void name##_add(void)                  \
    {                                                                          \
        test_add((struct CMUnitTest){__FILE__ ":" #name, name, TEST_SETUP,     \
                                     TEST_TEARDOWN, mark});                    \
    }                                                                          \
    static void name(void **state __attribute__((unused)))
#define TEST(name)      TEST_MARKED(name, NULL)
#define TEST_ONCE(name) TEST_MARKED(name, &test_once)

/* The program's main; an argument is a pattern of tests' names. */
#define TEST_MAIN(group, setup, teardown)                                      \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        return test_run(group, argc > 1 ? argv[1] : NULL, setup, teardown) !=  \
               0;                                                              \
    }

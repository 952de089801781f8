/* SPDX-License-Identifier: Apache-2.0 */
/*
** test.h: shared by the tests of the runtime.
**
** Each test starts with an empty folder, the fakes in place of the real
** libraries, and a driver that has forgotten everything.
*/
#pragma once

#define TEST_SETUP    test_setup
#define TEST_TEARDOWN test_teardown
#include "cases.h"

#include "fake.h"
#include "kernels.h"
#include "internal.h"

/* The folder of this test, and paths in it. */
extern char test_folder[256], test_cache[300], test_log[300];

/* The state of the fake driver, and of the fake cuBLASLt. */
extern struct fake_cuda *test_cuda;
extern struct fake_cublaslt *test_cublaslt;

int test_setup(void **state);
int test_teardown(void **state);

/* The code, and a part of the message. */
void test_expect(int code, int expected, const char *part);

/* fork a process that has not used CUDA, even if this one has. */
int test_fork(void);

/* Lines of the fakes' log that begin with `start`. */
int test_count(const char *start);

/* Open with the log collected in test_messages. */
struct quern_context *test_open(void);
extern char test_messages[8192];
void test_collect(void *user, int level, const char *line);

/* Open with kernels that are linked. */
struct quern_context *test_open_with(const struct quern_registry *registry);

/* Parse, and fail the test if that fails. */
struct qn_problem test_problem(struct quern_context *ctx, const char *text);

/* For plans with linked kernels. */
extern const struct qn_plan_options test_aot;

/* A plan of it; options may be NULL. */
struct qn_plan *test_plan(struct quern_context *ctx, const char *text,
                          const struct qn_plan_options *options);

/* The kernel of a plan, whose it is, and its CTAs or threads. */
void test_expect_choice(struct quern_context *ctx, const char *text,
                        const struct qn_plan_options *options,
                        const char *kernel, int backend, int sms);

/* The kernel of a plan, and whether it was measured. */
void test_expect_plan(struct quern_context *ctx, const char *text,
                      const char *kernel, int tuned);

/* qn_why's text has this part, or if not `there` has it not. */
void test_expect_why(struct quern_context *ctx, const char *text,
                     const char *part, int there);

/* The tuner gave back what it took of the fake driver. */
void test_expect_balance(void);

/* Buffers that fit a problem; freed with test_args_free. */
struct qn_args test_args(struct quern_context *ctx, const char *text);
void test_args_free(struct qn_args *args);

/* One change makes it wrong: the call refuses it, and says why. */
#define TEST_BROKEN(what, good, change, call, part)                            \
    do {                                                                       \
        what = good;                                                           \
        change;                                                                \
        test_expect(call, QUERN_EINVAL, part);                                 \
    } while (0)

/* Skip, and say what the test needs. */
#define TEST_SKIP(needs)                                                       \
    do {                                                                       \
        print_message("skip: %s\n", needs);                                    \
        skip();                                                                \
    } while (0)

/* The next allocations of the runtime: the n-th fails; 0 for none. Returns
   how many there were since the last call. */
int test_fail_allocation(int n);

/* Calls of the kernel that the runtime makes; all zero: as they are. */
struct test_system {
    int armed;          /* count them, and do as follows */
    int calls;          /* so far */
    int fail_at, error; /* the n-th one fails */
    int kill_at;        /* the process ends at the n-th one */
    int full, space;    /* so many bytes may still be written */
    int no_locks;       /* armed or not, like the next four */
    int no_waiting;     /* sleeping takes no time */
    int no_spawn;       /* starting a program is this error */
    int no_threads;     /* starting a thread is an error */
    long long clock;    /* seconds that it is fast */
};
extern struct test_system test_system;

/* The last call of the tests' host kernel. */
struct test_host {
    int calls, workers;
    const void *a, *b, *first_dims, *offsets;
    void *d;
    long long a_stride, b_stride, d_stride;
    int sizes_bytes, groups, m, n, k;
    unsigned *error;
};
extern struct test_host test_host;

/* A bit for each of its workers that ran since the test began. */
extern unsigned long long test_host_workers;

/* A registry without the kernel of that name; `left`: room for its kernels. */
struct quern_registry test_without(const struct quern_registry *registry,
                                   const char *kernel, struct qn_kernel *left);

/* Plan a small product with an empty environment but the cache's; its code. */
#define TEST_PLAN "fprop bf16 g=8 m=1000 n=512 k=256"
int test_plan_once(void);

/* The number of faults that `quern cache verify` finds, with a line for each
   in test_faults. */
int test_verify(void);
extern char test_faults[4096];

/* Files in a folder of the cache. */
int test_count_files(const char *part);

/* Remove the cache. */
void test_wipe(void);

/* A shell's command with the cache's path for each %s; it must succeed. */
void test_shell(const char *format);

/*
** test_cublaslt.h: grouped products in every form, with data.
*/
#ifndef TEST_CUBLASLT_H
#define TEST_CUBLASLT_H

#include <pthread.h>

#include "test.h"

enum { GROUPS = 5, TOTAL = 17, ELEMENTS = 8192, WORKSPACE = 98 << 20 };

extern const int64_t test_sizes[GROUPS]; /* two of TOTAL are left over */
extern const float test_alphas[GROUPS], test_betas[GROUPS];

/* Room for a, b, d, c, and a workspace, for one run at a time. */
extern float test_memory[4][ELEMENTS];
extern char test_workspace[WORKSPACE];

extern const struct quern_plan_options test_options; /* the backend */

/* A problem and how its operands lie. */
struct form {
    const char *recipe;
    int a_major, b_major, ragged, d_type;
    int alpha, beta, scalars; /* as in problem and args */
    int wide;                 /* rows and matrices with gaps */
    int sizes;                /* enum quern_sizes */
};

/* An operand by the axes of the canonical product. */
struct operand {
    int axes[2]; /* row and column of the product's own matrix */
    int swapped; /* in memory, the second axis counts rows */
    int type;
    int64_t stride, group_stride;
    void *data;
};

/* Everything for one run of a form. */
struct run {
    struct quern_problem p;
    struct quern_args args;
    struct operand a, b, c, d;
};

/* fprop bf16 tn, ragged over m. */
extern const struct form test_plain;

/* Small whole numbers everywhere, and the arguments of a run on them. */
void test_prepare(struct quern_context *ctx, const struct form *f,
                  struct run *r);

/* Runs a plan so many times, on a D and a workspace of its own. */
struct test_thread {
    pthread_t id;
    const struct quern_plan *plan;
    struct quern_args args;
    int times, failed;
};

/* Start them all and wait for them; no run may fail. */
void test_run_threads(struct test_thread *threads, int count);

#endif

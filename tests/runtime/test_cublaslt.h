/* SPDX-License-Identifier: Apache-2.0 */
/* test_cublaslt.h: grouped products in every form, with data. */
#pragma once

#include <pthread.h>

#include "support/exact.h"
#include "test.h"

enum { ELEMENTS = 8192, WORKSPACE = 98 << 20 };

/* Room for a, b, d, c, and a workspace, for one run at a time. */
extern float test_memory[4][ELEMENTS];
extern char test_workspace[WORKSPACE];

extern const struct qn_plan_options test_options; /* the backend */

/* fprop bf16 tn, ragged over m. */
extern const struct form test_plain;

/* Small whole values everywhere, and the arguments of a run on them. */
void test_prepare(struct quern_context *ctx, const struct form *f,
                  struct run *r);

/* Runs a plan so many times, on a D and a workspace of its own. */
struct test_thread {
    pthread_t id;
    const struct qn_plan *plan;
    struct qn_args args;
    int times, failed;
};

/* Start them all and wait for them; no run may fail. */
void test_run_threads(struct test_thread *threads, int count);

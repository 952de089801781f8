/* SPDX-License-Identifier: Apache-2.0 */
/* tune_files.h: files of measured winners, for tests. */
#pragma once

#include "test.h"

#define HEAD "quern tune 2\ngpu Fake\n"
#define OLD  "quern tune 1\ngpu Fake\nregistry old\n"
#define VALUES                                                                 \
    "sms=132 kernel=k_large key=key_of_k_large band=0 ns=80000 model=k_small " \
    "model_ns=100000 ratio=1.250 mhz=1755 certain=1\n"
#define LINE    "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | " VALUES
#define LINE2   "fprop bf16 g=8 m=512 n=256 k=64 d=bf16 | " VALUES
#define PROBLEM "fprop bf16 g=4 m=512 n=256 k=64"

/* Write a file of the test's folder; `folder` is made. */
void test_tune_put(const char *folder, const char *name, const char *text);

/* Two folders of the test's, as $QUERN_TUNE. */
void test_tune_folders(const char *one, const char *two);

/* Does a plan have that kernel since it was measured? The kernel is checked. */
int test_tune_used(struct quern_context *ctx, const char *text,
                   const char *kernel);

/* The explanation of PROBLEM; freed with quern_free. */
char *test_tune_why(struct quern_context *ctx);

/* Measure; `file`, which may be NULL, gets the result's. */
int test_tune_problem(struct quern_context *ctx, const char *text,
                      char file[512]);

/* Lines of measurements in a file. */
int test_tune_lines(const char *folder, const char *name);

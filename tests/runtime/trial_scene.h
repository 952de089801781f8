/* SPDX-License-Identifier: Apache-2.0 */
/*
** trial_scene.h: kernels on a GPU on which they never ran, and a shell's script
** in place of the program that tries them; the script appends the name of each
** kernel to $FOLDER/tried. The program itself is tested in
** tests/ptx/test_trial.c.
*/
#pragma once

#include "test.h"

#include "base/context.h"
#include "choose/session.h"
#include "choose/trial.h"

#include <errno.h>
#include <fcntl.h>
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
static inline void write_checker(const char *n_best, const char *n_next,
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

static inline void forget_tried(void)
{
    char path[300];

    snprintf(path, sizeof path, "%s/tried", test_folder);
    unlink(path);
}

static inline struct quern_context *open_trial(void)
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
static inline int count_open(void)
{
    int count = 0;

    for (int file = 0; file < 256; file++)
        count += fcntl(file, F_GETFD) >= 0;
    return count;
}

/* The kernel of a plan of a new context, the kernels that were tried for it,
   and a part of the log ("": it is empty). */
static inline void expect(const char *kernel, const char *tried,
                          const char *log)
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
static inline void expect_twice(const char *kernel, const char *tried,
                                const char *log, int kept)
{
    expect(kernel, tried, log);
    expect(kernel, kept ? "" : tried,
           kept && !strstr(log, "serves") ? "" : log);
}

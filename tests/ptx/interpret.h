/* SPDX-License-Identifier: Apache-2.0 */
/* interpret.h: programs of the build, whose GPU is the interpreter. */
#pragma once

struct interpret {
    const char *device; /* "9.0" */
    int seed;
    const char *variable, *value; /* PTX_... for the interpreter, or NULL */
};

/* In the order of a program's tests: before the first and after the last. The
   status is for cmocka. Without NVRTC there is nothing to run. */
int interpret_open(void **state);
int interpret_close(void **state);
/* Skips the test, and says why, without NVRTC. */
void interpret_need_compiler(void);

/* Families of the GPU suite for a kernel: `products` of those that are no more
   than a product. */
const char *interpret_families(const char *kernel, const char *products);

/* A folder for files, empty at first. */
extern char interpret_folder[];
/* The last run's output. */
extern char interpret_output[];
/* Run build/bin/COMMAND; returns the exit status. */
int interpret(const struct interpret *how, const char *command);

/* The interpreter's driver in this process, started again with a variable. */
struct qn_driver;
struct qn_driver *interpret_start(const char *variable, const char *value);
/* Load PTX and run its kernel, named "kernel", there. 0, or an error's code. */
struct cu_launch;
int interpret_launch(const char *text, const struct cu_launch *shape,
                     void **params);

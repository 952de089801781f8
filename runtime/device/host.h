/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: kernels that run on this machine's cores. */
#pragma once

#include "internal.h"

struct qn_compiled;
struct quern_context;

typedef void qn_host_function(void *const *params, int worker, int workers);

#define QN_HOST_THREADS 256 /* the most that a run uses */

int qn_host_cores(void); /* that this process may use, at least 1 */

/* QUERN_THREADS, else the cores. QUERN_EINVAL if the variable is no number from
   1 to QN_HOST_THREADS. */
int qn_host_threads(const struct quern_context *ctx, int *threads);

/* Run all workers and wait for them, in the default floating-point mode, which
   is the caller's again afterwards. Allocates nothing; where threads cannot be
   started the caller's does their work. */
void qn_host_run(qn_host_function *function, void *const *params, int workers);

/* The same four things that a GPU kernel's maker has; see jit.c. */
const char *qn_host_options(void);
const char *qn_host_machine(void); /* "x86_64" */
int qn_host_version(struct quern_context *ctx, char *text, size_t size);
/* Files are made and removed in a new folder of `folder`; NULL: of $TMPDIR,
   else /tmp. */
int qn_host_compile(struct quern_context *ctx, const char *folder,
                    const struct qn_kernel *kernel, const char *source,
                    struct qn_compiled *out);

/* A shared library in memory, loaded. */
struct qn_host_library {
    void *handle;
    int file; /* open as long as the library is loaded */
    qn_host_function *function;
};

int qn_host_load(const char *kernel, const void *object, size_t bytes,
                 struct qn_host_library *library);
void qn_host_unload(struct qn_host_library *library);

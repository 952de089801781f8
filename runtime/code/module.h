/* SPDX-License-Identifier: Apache-2.0 */
/* module.h: kernels that are loaded, one of each for a context. */
#pragma once

#include "device/host.h"

struct cu_kernel;
struct cu_library;
struct qn_candidate;
struct quern_context;

struct qn_module {
    struct qn_module *next;
    const struct qn_kernel *kernel;
    int backend;  /* HOST, JIT or AOT */
    int loading;  /* another thread is at it; nothing else is set */
    int rejected; /* not fit for use, or not compiled; nothing else is set */
    struct cu_library *library;
    struct cu_kernel *handle;
    qn_host_function *function;
    struct qn_host_library host; /* unless it was linked */
};

/* The loaded kernel; it lives as long as the context. Threads that want the
   same one wait for the first. Errors of qn_jit_object, QN_REJECTED among
   them, and of the driver. For GPU backends a context must be current. */
int qn_module_get(struct quern_context *ctx,
                  const struct qn_candidate *candidate, int backend,
                  struct qn_module **out);

/* Is the kernel loaded, or known to be of no use? */
int qn_module_known(struct quern_context *ctx, const struct qn_kernel *kernel,
                    int backend);

/* Unload all, when the context is closed. */
void qn_module_close_all(struct quern_context *ctx);

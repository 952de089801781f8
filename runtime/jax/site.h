/* SPDX-License-Identifier: Apache-2.0 */
/*
** site.h: one call site of a compiled program: its line, the places of its
** operands among XLA's buffers, and a plan for each device. XLA keeps it as the
** call's state and destroys it with the program.
*/
#ifndef QUERN_JAX_SITE_H
#define QUERN_JAX_SITE_H

#include <pthread.h>
#include <stdatomic.h>

#include "jax/ffi.h"
#include "quern.h"

enum { QN_SITE_DEVICES = 64 };

struct qn_site {
    char *line;
    int is_cuda;
    int64_t rows;           /* of the line's ragged axis, else 0 */
    struct quern_args args; /* without buffers */
    /* Index among the call's operands and results of each operand; -1: the call
       does not have it. */
    short operand[QUERN_ARGS_COUNT], result[QUERN_ARGS_COUNT];
    int operands, results;
    pthread_mutex_t lock; /* of making plans */
    atomic_int forks;     /* qn_binding_forks when they were made */
    _Atomic(struct quern_plan *) plans[QN_SITE_DEVICES];
};

/*
** Read the attributes of a call: line, operands and results (names of the
** line's operands, in the order of the buffers), rows, phase, and of
** clamped_swiglu limit, slope and shift. For the host it makes the plan, too.
** NULL, or XLA's error with the library's sentence.
*/
struct qn_ffi_error *qn_site_make(const struct qn_ffi_call *call, int is_cuda,
                                  struct qn_site **site);
void qn_site_destroy(void *site);

/* Make the plan for a device if it has none. May compile: not in a capture. */
struct qn_ffi_error *qn_site_prepare(const struct qn_ffi_call *call,
                                     struct qn_site *site, int device);

/* On the host, before each run: in a child of fork() the plan is made again. */
struct qn_ffi_error *qn_site_renew(const struct qn_ffi_call *call,
                                   struct qn_site *site);

/* An error of ours, and one with quern_errmsg for a code of the library. */
__attribute__((format(printf, 3, 4))) struct qn_ffi_error *
qn_site_fail(const struct qn_ffi_call *call, enum qn_ffi_code code,
             const char *format, ...);
struct qn_ffi_error *qn_site_fail_library(const struct qn_ffi_call *call,
                                          int code);

enum qn_site_event {
    QN_SITE_PLANS,    /* made */
    QN_SITE_RUNS,     /* launched, or on the host run */
    QN_SITE_CAPTURED, /* of these, into a CUDA graph */
    QN_SITE_LIVE,     /* sites that exist */
    QN_SITE_EVENTS
};
extern _Atomic int64_t qn_site_count[QN_SITE_EVENTS];

#endif

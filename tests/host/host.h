/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: shared by the host tests: one context and a run between canaries. */
#pragma once

#include "cases.h"

#include "oracle/memory.h"
#include "support/case.h"

extern struct quern_context *host_ctx;

enum { HOST_GUARD = 1 << 16 }; /* bytes on both sides of D */

/* D between two guards, and all else that a run takes in addition to its
   data. */
struct host_output {
    unsigned char *memory;
    void *d;
    size_t d_bytes;
    void *workspace;
    size_t workspace_bytes;
    void *pointers[QT_ROLES][QUERN_MAX_GROUPS];
};

/* A test goes on in a context that has the folder's specs, too, until it closes
   them; it is skipped where no C compiler could make their kernels. */
struct host_specs {
    struct quern_context *before;
};
void host_specs_open(struct host_specs *, const char *folder);
void host_specs_close(struct host_specs *);

/* Each line is refused as invalid, with a message that begins so; lines[i] is a
   line and the beginning. */
void host_refuses(const char *const lines[][2], int count);

/* A plan of the host backend; fails the test if it cannot be made. */
struct qn_plan *host_plan(const struct qt_case *c, int threads,
                          struct qn_args *args);

/* D as it is before a run, poison around it; the first call allocates. */
void host_output_reset(struct host_output *, const struct qt_data *data);
void host_output_free(struct host_output *);

/* Fails the test if a guard was written. */
void host_output_guarded(const struct host_output *, const char *what);

/* qn_run and qn_check on `data`; returns qn_check's code. */
int host_run(const struct qn_plan *plan, struct qn_args *args,
             const struct qt_case *c, const struct qt_data *data,
             struct host_output *out);

/* All of it: plan, run, check QUERN_OK and the guards. The caller frees. */
void host_multiply(const struct qt_case *c, const struct qt_data *data,
                   int threads, struct host_output *out);

/* The case with invalid sizes: reported for the first wrong group, and
   nothing written outside of the buffers. */
void host_lie(struct qt_case *c, const struct qt_bad_size *bad_size,
              int sizes_type);

/* The same with data of its own, compared with float64. */
void host_case_right(const struct qt_case *c);

/* The rowwise tensor that a cast makes of fp32, with the activation, rows and
   groups of a product whose result it would be: `of` an x or a dy. `given` has
   all addresses but the workspace's. Returns the copy's stride, 0 if packed. */
int64_t host_cast(const struct qn_problem *problem, int of, int64_t features,
                  const struct qn_quantize_args *given);

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_call.h: a product, a cast or an MLP with its buffers: what is written,
   its sizes, and a run of it on any stream. */
#pragma once

#include "oracle/cast.h"
#include "oracle/job.h"
#include "oracle/layer.h"

enum { GPU_CALL_PARTS = 40, GPU_CALL_QUEUED = 4 };

enum gpu_call_kind { GPU_PRODUCT, GPU_CAST, GPU_MLP };

/* An MLP's weight gradients: in backward, by a call of their own, queued. */
enum gpu_call_later { GPU_NOW, GPU_LATER, GPU_QUEUED };

/* A buffer that runs write. */
struct gpu_call_part {
    struct qn_memory *memory;
    void *before; /* what it held at first */
};

/* All zero is one that was not opened; gpu_call_close takes any. */
struct gpu_call {
    int kind;  /* enum gpu_call_kind */
    int later; /* enum gpu_call_later */
    struct qn_job job;
    struct qn_cast cast;
    struct qn_layer layer;
    struct quern_queue *queue; /* of a product with parts, or GPU_QUEUED */
    struct gpu_call_part parts[GPU_CALL_PARTS];
    int count;
    size_t most;             /* bytes of a part */
    struct qn_memory *sizes; /* NULL: there are none on the device */
    int64_t *lengths;        /* the host's */
    int groups;
    int64_t rows;          /* of all groups, at most */
    struct qn_memory noop; /* 0; an MLP does not read it */
};

/* Plan the line of a problem, a quantization or an MLP, and make buffers; all
   with the same data. 0, or another number after printing the error. */
int gpu_call_open(struct gpu_call *, const char *line, int later);
void gpu_call_close(struct gpu_call *);

/* Queue it: of an MLP weights, forward and backward; with parts the product
   GPU_CALL_QUEUED times by a queue, merged where kernels do that. Codes of the
   library. */
int gpu_call_run(struct gpu_call *, void *stream);
int gpu_call_check(struct gpu_call *, void *stream);

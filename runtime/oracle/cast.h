/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h: a quantization with data, ready to run: as job.h for products. */
#pragma once

#include "oracle/message.h"
#include "oracle/gpu.h"
#include "oracle/job.h"
#include "oracle/memory.h"

/* Buffers of a run. */
enum qn_cast_part {
    QN_CAST_IN,
    QN_CAST_SAVED,
    QN_CAST_BIAS,
    QN_CAST_PROBABILITY,
    QN_CAST_RANDOM,
    QN_CAST_SIZES,
    QN_CAST_SCALE, /* from here on they are written, too */
    QN_CAST_HISTORY,
    QN_CAST_ROW,
    QN_CAST_ROW_SF,
    QN_CAST_ROW_GLOBAL,
    QN_CAST_COLUMN,
    QN_CAST_COLUMN_SF,
    QN_CAST_COLUMN_GLOBAL,
    QN_CAST_OUT,
    QN_CAST_DBIAS,
    QN_CAST_DPROB,
    QN_CAST_PARTS
};

/* All zero is one that was not begun; qn_cast_free takes any. */
struct qn_cast {
    struct quern_context *ctx; /* the caller's */
    struct qn_quantization q;
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct quern_plan_info info;
    struct qn_gpu *gpu; /* NULL: the host backend */
    int64_t sizes[QUERN_MAX_GROUPS];
    int64_t rows; /* of all groups */
    size_t bytes[QN_CAST_PARTS];
    void *host[QN_CAST_PARTS]; /* before a run; NULL: poison */
    struct qn_memory memory[QN_CAST_PARTS], workspace;
    struct qn_quantize_args args;
};

/* Draw group sizes and random data, plan, make buffers. Inputs of a
   transpose or dequantize are quantized here first. An exit status, after
   printing. */
int qn_cast_begin(struct qn_cast *, const struct qn_options *,
                  struct quern_context *, const struct qn_quantization *,
                  int backend);
/* The same on the host, as the reference or input of another. */
int qn_cast_begin_host(struct qn_cast *, const struct qn_options *,
                       struct quern_context *, const struct qn_quantization *);
void qn_cast_free(struct qn_cast *);

/* Run once, wait, qn_quantize_run_check. Codes of the library. */
int qn_cast_run(struct qn_cast *);

/* How long it takes; the median of `runs` (0: about a second's). */
int qn_cast_measure(struct qn_cast *, int runs, struct qn_job_time *);

/* Bytes of all buffers that are not the same, and where the first one is. */
int qn_cast_compare(const struct qn_cast *, const struct qn_cast *,
                    double *bytes, char *where, size_t size);

/* Sets `*intact` to 1 if nothing was written around any buffer. */
int qn_cast_guards(const struct qn_cast *, int *intact);

/* The bytes that must be moved at least, once each. */
double qn_cast_bytes(const struct qn_cast *);

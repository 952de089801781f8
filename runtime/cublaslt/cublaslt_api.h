/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_api.h: the part of cuBLASLt's interface that the runtime calls,
   declared here so that no CUDA header is needed. Values and sizes are those
   of cublasLt.h 12.0 to 13.10, whose inline functions rely on them, too. */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>

struct cu_stream;
struct lt_context;

/* Semi-opaque: written by the _Init functions, in memory of the caller's. */
struct lt_desc {
    uint64_t data[32];
};
struct lt_layout {
    uint64_t data[8];
};
struct lt_preference {
    uint64_t data[8];
};
struct lt_algo {
    uint64_t data[8];
};

struct lt_heuristic {
    struct lt_algo algo;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

enum { /* CUBLAS_STATUS_... */
       LT_SUCCESS = 0,
       LT_ALLOC_FAILED = 3,
       LT_NOT_SUPPORTED = 15
};
enum { /* cudaDataType */
       LT_R_32F = 0,
       LT_R_16F = 2,
       LT_R_16BF = 14,
       LT_R_8F_E4M3 = 28,
       LT_R_8F_E5M2 = 29
};
enum { LT_COMPUTE_32F = 68 };
enum { LT_OP_N, LT_OP_T };
enum { LT_POINTERS_HOST, LT_POINTERS_DEVICE };
enum { /* CUBLASLT_MATMUL_DESC_... */
       LT_DESC_POINTER_MODE = 2,
       LT_DESC_TRANSA = 3,
       LT_DESC_TRANSB = 4,
       LT_DESC_SM_COUNT_TARGET = 15,
       LT_DESC_A_SCALE_POINTER = 17,
       LT_DESC_B_SCALE_POINTER = 18,
       LT_DESC_FAST_ACCUM = 25,   /* an int8_t: FP8 sums stay in the cores */
       LT_DESC_A_SCALE_MODE = 31, /* from 12.8 on */
       LT_DESC_B_SCALE_MODE = 32
};
enum { /* CUBLASLT_MATMUL_MATRIX_SCALE_... */
       LT_SCALE_SCALAR = 0,
       LT_SCALE_VECTOR_32 = 2,    /* from 12.8 on: e8m0, tiles of 128 x 4 */
       LT_SCALE_OUTER_VECTOR = 3, /* from 12.9 on: fp32 for each row */
       LT_SCALE_VECTOR_128 = 4,   /* from 12.9 on: fp32 [k / 128][rows] */
       LT_SCALE_BLOCK_128 = 5     /* and [rows / 128][k / 128, in fours] */
};
enum { /* CUBLASLT_MATRIX_LAYOUT_... */
       LT_LAYOUT_BATCH_COUNT = 5,
       LT_LAYOUT_BATCH_OFFSET = 6
};
enum { /* CUBLASLT_MATMUL_PREF_... */
       LT_PREFER_WORKSPACE_BYTES = 1,
       LT_PREFER_REDUCTIONS = 3,
       LT_PREFER_ALIGNMENT_A = 5, /* then B, C and D */
       LT_PREFER_AVERAGE_K = 13,  /* of groups; then D's rows, its columns */
};
enum { LT_REDUCTION_COMPUTE_TYPE = 2 }; /* split k: partial sums in fp32 */

/* X(name, arguments): symbols looked up when the library is opened. All return
   a cublasStatus_t; 0 is success. */
#define QN_LT_FUNCTIONS(X)                                                     \
    X(cublasLtCreate, (struct lt_context * *context))                          \
    X(cublasLtDestroy, (struct lt_context * context))                          \
    X(cublasLtMatmulDescInit_internal,                                         \
      (struct lt_desc * desc, size_t size, int compute, int scale))            \
    X(cublasLtMatmulDescSetAttribute,                                          \
      (struct lt_desc * desc, int attribute, const void *value, size_t size))  \
    X(cublasLtMatrixLayoutInit_internal,                                       \
      (struct lt_layout * layout, size_t size, int type, uint64_t rows,        \
       uint64_t columns, int64_t ld))                                          \
    X(cublasLtMatrixLayoutSetAttribute,                                        \
      (struct lt_layout * layout, int attribute, const void *value,            \
       size_t size))                                                           \
    X(cublasLtMatmulPreferenceInit_internal,                                   \
      (struct lt_preference * preference, size_t size))                        \
    X(cublasLtMatmulPreferenceSetAttribute,                                    \
      (struct lt_preference * preference, int attribute, const void *value,    \
       size_t size))                                                           \
    X(cublasLtMatmulAlgoGetHeuristic,                                          \
      (struct lt_context * context, struct lt_desc * desc,                     \
       struct lt_layout * a, struct lt_layout * b, struct lt_layout * c,       \
       struct lt_layout * d, struct lt_preference * preference, int wanted,    \
       struct lt_heuristic *results, int *count))                              \
    X(cublasLtMatmul,                                                          \
      (struct lt_context * context, struct lt_desc * desc, const void *alpha,  \
       const void *a, struct lt_layout *a_layout, const void *b,               \
       struct lt_layout *b_layout, const void *beta, const void *c,            \
       struct lt_layout *c_layout, void *d, struct lt_layout *d_layout,        \
       const struct lt_algo *algo, void *workspace, size_t workspace_bytes,    \
       struct cu_stream *stream))

/* The one that libraries may lack: layouts of `groups` matrices, whose rows,
   columns and strides are int32 arrays on the device; where such are multiplied
   addresses are arrays there, too. Called experimental where it first is. */
typedef int qn_lt_grouped(struct lt_layout *layout, size_t size, int type,
                          int groups, const void *rows, const void *columns,
                          const void *ld);

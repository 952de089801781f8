/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_product.h: one product of matrices by cuBLASLt, or a batch of them
   that are evenly spaced. */
#pragma once

#include "choose/step.h"
#include "cublaslt/cublaslt_api.h"
#include "cublaslt/cublaslt_lanes.h"

#include <pthread.h>

struct cu_stream;
struct lt_context;
struct qn_cublaslt;

enum { QN_LT_A, QN_LT_B, QN_LT_C, QN_LT_D, QN_LT_MATRICES };

/* The library's workspace is at a multiple of this. */
#define QN_CUBLASLT_SCRATCH   ((size_t)32 << 20)
#define QN_CUBLASLT_ALIGNMENT 256

/* A matrix of the canonical product, as its operand is in memory. */
struct qn_cublaslt_matrix {
    void *data;
    int64_t stride; /* elements from one row to the next */
    int64_t step;   /* from one matrix of the batch to the next */
};

/* Products of many groups in one call: `count` of each on the device, at `at`,
   array after array: addresses of A, B, C and D in 64 bits, then in 32 each
   product's m, n and k, and the strides of A, B, C and D. */
struct qn_cublaslt_arrays {
    int count;
    char *at; /* a multiple of 8 */
};
enum {
    QN_LT_AXES = QN_LT_MATRICES, /* the arrays, by number: m is the first of */
    QN_LT_STRIDES = QN_LT_AXES + 3,
    QN_LT_ARRAYS = QN_LT_STRIDES + QN_LT_MATRICES,
    QN_CUBLASLT_GROUP_BYTES = QN_LT_MATRICES * 8 + (3 + QN_LT_MATRICES) * 4
};

/* With arrays, m, n and k are averages, and an address is a divisor of all. */
struct qn_cublaslt_product {
    int form;                         /* of the engine's */
    int64_t m, n, k;                  /* at least 1 */
    struct qn_cublaslt_arrays arrays; /* count 0: there are none */
    int64_t batch; /* matrices of each operand; 1: steps count for nothing */
    struct qn_cublaslt_matrix matrices[QN_LT_MATRICES];
    const void *alpha, *beta; /* floats, where the form says */
    const void *scales[2];    /* of A, of B: on the device, as the engine's
                                 modes say; NULL, both: 1 */
    void *scratch;            /* QN_CUBLASLT_SCRATCH bytes */
    struct cu_stream *stream;
};

/* Properties that products share, in addition to their sizes. */
struct qn_cublaslt_form {
    int a_major, b_major; /* enum quern_major */
    struct lt_desc desc;
};
enum {
    QN_CUBLASLT_PLAIN, /* the problem's own layout */
    QN_CUBLASLT_ZEROS, /* A and B k-major, for any problem's */
    QN_CUBLASLT_FORMS
};

/* Everything a product is looked up by; compared as bytes, so no padding. */
struct qn_cublaslt_key {
    int64_t m, n, k, batch, form, count;
    int64_t strides[QN_LT_MATRICES], steps[QN_LT_MATRICES];
    uint32_t alignments[QN_LT_MATRICES]; /* in bytes, at most 256 */
};

/* An algorithm that was found; `used` 0: a free slot. */
struct qn_cublaslt_memo {
    struct qn_cublaslt_key key;
    struct lt_algo algo;
    int used;
};

struct qn_cublaslt_engine {
    const struct qn_cublaslt *lt;
    const char *name; /* for people; the library's own */
    struct lt_context *context;
    int types[QN_LT_MATRICES]; /* cudaDataType */
    int device_scalars, sms, modes[2], fast;
    int grouped;                    /* runs may give arrays */
    struct qn_step size_step;       /* loads the arrays of a grouped call */
    struct qn_cublaslt_lanes lanes; /* opened and closed separately */
    struct qn_cublaslt_form forms[QN_CUBLASLT_FORMS];
    pthread_mutex_t lock;          /* guards the rest */
    struct qn_cublaslt_memo *memo; /* sets of 4; a full one forgets in turn */
    unsigned sets;                 /* a power of 2 */
    unsigned turn;
};

/* How the engine's products are made. */
struct qn_cublaslt_make {
    int a_type, b_type, d_type; /* enum quern_type */
    int scale;                  /* enum qn_cublaslt_scale */
    int modes[2];               /* of A's scales, of B's: LT_SCALE_... */
    int fast;                   /* FP8: sums need not leave the tensor cores */
    int a_major, b_major;
    int device_scalars; /* alpha and beta are in device memory */
    int sms;            /* multiprocessors to use; 0: all */
    int groups;         /* sizes that may differ within one run */
};

/* Try whether the library, on this GPU, multiplies products like this one in
   one call; from then on the engine's name says so. QUERN_ENOKERNEL: it does
   not, or has never heard of that. */
int qn_cublaslt_group(struct qn_cublaslt_engine *engine,
                      const struct qn_cublaslt_product *like);
/* As if that had not been tried: something else is missing. */
void qn_cublaslt_ungroup(struct qn_cublaslt_engine *engine);

/* 1 if the library has the product A B^T -> D of these types. */
int qn_cublaslt_has(int a_type, int b_type, int d_type);

/* Prepare, with the GPU's context current. After an error nothing is left.
   QUERN_ECUDA, QUERN_ENOMEM, QUERN_ENOKERNEL. */
int qn_cublaslt_engine_open(struct qn_cublaslt_engine *engine,
                            const struct qn_cublaslt *lt,
                            const struct qn_cublaslt_make *make);
void qn_cublaslt_engine_close(struct qn_cublaslt_engine *engine);

/* Queue D = alpha A B^T + beta C. Allocates nothing; the first of its sizes,
   strides and alignments looks for an algorithm, later ones remember it. May
   be called by several threads at once. QUERN_ECUDA, QUERN_ENOKERNEL. */
int qn_cublaslt_multiply(struct qn_cublaslt_engine *engine,
                         const struct qn_cublaslt_product *product);

/* SPDX-License-Identifier: Apache-2.0 */
/* product.h: what the fake for cuBLASLt keeps in the library's
   opaque structures. */
#pragma once

#include "cublaslt/cublaslt_api.h"

struct desc {
    const void *scales[2];
    int32_t kind, compute, scale, ops[2], device, sms, modes[2];
    int8_t fast;
};
struct layout {
    int32_t kind, type;
    uint64_t rows, columns; /* of groups the addresses of int32 arrays */
    int64_t ld, offset;
    int32_t batch, grouped;
};
struct preference {
    uint64_t workspace;
    int32_t kind;
    uint32_t reductions, alignments[4], averages[3];
};
struct algo {
    uint64_t workspace, product; /* hash */
    int32_t kind;
    uint32_t alignments[4], averages[3];
};

struct call {
    const struct desc *desc;
    const struct layout *x[4];
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

/* Rows and columns of op(matrix). */
uint64_t fake_op_rows(const struct layout *l, int op);
uint64_t fake_op_columns(const struct layout *l, int op);

/* Element (i, j) of matrix `batch`; column-major. */
size_t fake_place(const struct layout *l, int batch, uint64_t i, uint64_t j);

/* One matrix of the batch; C counts for nothing where beta is 0, NaN
   included. */
void fake_compute(const struct call *call, int batch);

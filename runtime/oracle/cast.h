/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h: a quantization with data, ready to run: as job.h for products. */
#pragma once

#include "oracle/call.h"

/* All zero is one that was not begun; qn_call_free(&c->call) takes any. */
struct qn_cast {
    struct qn_call call;
    struct qn_quantization q;
    uint64_t seed;
    int64_t sizes[QUERN_MAX_GROUPS];
    int64_t rows; /* of all groups */
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

/* The addresses of the rowwise tensor, or the columnwise one. */
struct qn_tensor qn_cast_copy(const struct qn_cast *, int copy);

/* Bytes of all operands that are not the same, and where the first one is. */
int qn_cast_compare(const struct qn_cast *, const struct qn_cast *,
                    double *bytes, char *where, size_t size);

/* The bytes that must be moved at least, once each. */
double qn_cast_bytes(const struct qn_cast *);

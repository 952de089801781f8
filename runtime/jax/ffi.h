/* SPDX-License-Identifier: Apache-2.0 */
/*
** ffi.h: the part of XLA's FFI C API that quern uses, as of version 0.1, which
** every later XLA accepts. It is declared here, so that neither jax nor its
** headers are needed to build, and one library serves all versions of jax.
*/
#ifndef QUERN_JAX_FFI_H
#define QUERN_JAX_FFI_H

#include <stddef.h>
#include <stdint.h>

struct qn_ffi_error;   /* XLA's; NULL is success */
struct qn_ffi_context; /* of one call */

enum { QN_FFI_MAJOR = 0, QN_FFI_MINOR = 1 };

struct qn_ffi_extension {
    size_t size;
    int type; /* 1: of qn_ffi_metadata_extension */
    struct qn_ffi_extension *next;
};

/* Every struct below begins so; `size` is that of the struct. */
#define QN_FFI_HEAD                                                            \
    size_t size;                                                               \
    struct qn_ffi_extension *extension

/* Codes of errors, those that quern gives. */
enum qn_ffi_code {
    QN_FFI_INVALID_ARGUMENT = 3,
    QN_FFI_NOT_FOUND = 5,
    QN_FFI_RESOURCE_EXHAUSTED = 8,
    QN_FFI_FAILED_PRECONDITION = 9,
    QN_FFI_OUT_OF_RANGE = 11,
    QN_FFI_UNIMPLEMENTED = 12,
    QN_FFI_INTERNAL = 13,
    QN_FFI_UNAVAILABLE = 14
};

/* Types of elements. */
enum qn_ffi_type {
    QN_FFI_S32 = 4,
    QN_FFI_S64 = 5,
    QN_FFI_U8 = 6,
    QN_FFI_U32 = 8,
    QN_FFI_F16 = 10,
    QN_FFI_F32 = 11,
    QN_FFI_BF16 = 16
};

struct qn_ffi_buffer {
    QN_FFI_HEAD;
    int type; /* enum qn_ffi_type, or another number */
    void *data;
    int64_t rank;
    int64_t *dims;
};

struct qn_ffi_buffers {
    QN_FFI_HEAD;
    int64_t count;
    int *kinds; /* 1: a buffer */
    struct qn_ffi_buffer **at;
};

/* Attributes: a scalar is struct qn_ffi_scalar, a string struct qn_ffi_span. */
enum { QN_FFI_SCALAR = 3, QN_FFI_STRING = 4 };

struct qn_ffi_span {
    const char *text; /* without an end */
    size_t length;
};

struct qn_ffi_scalar {
    int type;
    void *value;
};

struct qn_ffi_attributes {
    QN_FFI_HEAD;
    int64_t count;
    int *kinds;
    struct qn_ffi_span **names;
    void **at;
};

/* The type of a call site's state; XLA assigns it. */
struct qn_ffi_type_id {
    int64_t id;
};

struct qn_ffi_type_info {
    QN_FFI_HEAD;
    void (*destroy)(void *object);
};

enum { QN_FFI_INSTANTIATE = 0 }; /* the stage whose state we set and get */

struct qn_ffi_version {
    QN_FFI_HEAD;
    int major, minor;
};

enum { QN_FFI_COMMAND_BUFFER_COMPATIBLE = 1 }; /* trait: may be captured */

struct qn_ffi_metadata {
    size_t size;
    struct qn_ffi_version version;
    uint32_t traits;
    struct qn_ffi_type_id state; /* 0: a handler without state */
};

struct qn_ffi_metadata_extension {
    struct qn_ffi_extension head;
    struct qn_ffi_metadata *metadata;
};

struct qn_ffi_error_args {
    QN_FFI_HEAD;
    const char *message;
    int code;
};

struct qn_ffi_state_args {
    QN_FFI_HEAD;
    struct qn_ffi_context *context;
    int stage;
    struct qn_ffi_type_id *type;
    void *state;
};

struct qn_ffi_stream_args {
    QN_FFI_HEAD;
    struct qn_ffi_context *context;
    void *stream;
};

struct qn_ffi_ordinal_args {
    QN_FFI_HEAD;
    struct qn_ffi_context *context;
    int32_t ordinal;
};

/* XLA's functions; those that quern does not call are `unused`. */
struct qn_ffi_api {
    QN_FFI_HEAD;
    struct qn_ffi_version version;
    const void *internal;
    struct qn_ffi_error *(*make_error)(struct qn_ffi_error_args *);
    void (*unused1[3])(void);
    struct qn_ffi_error *(*get_stream)(struct qn_ffi_stream_args *);
    void (*unused2[2])(void);
    struct qn_ffi_error *(*set_state)(struct qn_ffi_state_args *);
    struct qn_ffi_error *(*get_state)(struct qn_ffi_state_args *);
    void (*unused3[8])(void);
    struct qn_ffi_error *(*get_ordinal)(struct qn_ffi_ordinal_args *);
};

struct qn_ffi_call {
    QN_FFI_HEAD;
    const struct qn_ffi_api *api;
    struct qn_ffi_context *context;
    int stage;
    struct qn_ffi_buffers operands, results;
    struct qn_ffi_attributes attributes;
};

#endif

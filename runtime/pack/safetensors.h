/* SPDX-License-Identifier: Apache-2.0 */
/*
** safetensors.h: files of named tensors: the header's length in 8 bytes, a
** header in JSON, then the tensors' bytes.
**
** Files are untrusted. After qn_safetensors_open each tensor is inside its
** file, and has the bytes that its type and shape need; no byte of the data
** belongs to two tensors, or to none; names are unique. Functions return codes
** of quern.h, and qn_error_text names file, tensor and rule.
*/
#pragma once

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_SAFETENSORS_DIMS = 8,
    QN_SAFETENSORS_HEADER = 100000000, /* bytes, the format's own limit */
};

/* X(name in C, name in files, bits) */
#define QN_SAFETENSORS_TYPES(X)                                                \
    X(BOOL, "BOOL", 8)                                                         \
    X(F4, "F4", 4)                                                             \
    X(F6_E2M3, "F6_E2M3", 6)                                                   \
    X(F6_E3M2, "F6_E3M2", 6)                                                   \
    X(U8, "U8", 8)                                                             \
    X(I8, "I8", 8)                                                             \
    X(F8_E5M2, "F8_E5M2", 8)                                                   \
    X(F8_E4M3, "F8_E4M3", 8)                                                   \
    X(F8_E8M0, "F8_E8M0", 8)                                                   \
    X(I16, "I16", 16)                                                          \
    X(U16, "U16", 16)                                                          \
    X(F16, "F16", 16)                                                          \
    X(BF16, "BF16", 16)                                                        \
    X(I32, "I32", 32)                                                          \
    X(U32, "U32", 32)                                                          \
    X(F32, "F32", 32)                                                          \
    X(C64, "C64", 64)                                                          \
    X(F64, "F64", 64)                                                          \
    X(I64, "I64", 64)                                                          \
    X(U64, "U64", 64)
enum qn_safetensors_type {
#define QN_SAFETENSORS_ENUM(name, text, bits) QN_ST_##name,
    QN_SAFETENSORS_TYPES(QN_SAFETENSORS_ENUM) QN_ST_COUNT
#undef QN_SAFETENSORS_ENUM
};

struct qn_safetensor {
    const char *name; /* lives as the file's struct */
    int type;         /* enum qn_safetensors_type */
    int ndim;
    int64_t shape[QN_SAFETENSORS_DIMS];
    uint64_t begin, bytes; /* in the file's data */
};

struct qn_safetensors {
    char *label;  /* for messages: the path */
    char *header; /* as it is in the file */
    size_t header_bytes;
    cJSON *json;
    int file;                      /* -1: there is none */
    uint64_t data;                 /* where the file's data begin */
    uint64_t data_bytes;           /* all of it */
    struct qn_safetensor *tensors; /* by name */
    int count;
};

const char *qn_safetensors_type(int type);
int qn_safetensors_bits(int type);

/* "F8_E4M3 [2048, 7168]", of a tensor; in `text`. */
const char *qn_safetensors_shape(const struct qn_safetensor *, char *text,
                                 size_t size);

/* Check a header and list its tensors. Takes `header`, of malloc, which a zero
   follows, in any case; `data_bytes` is UINT64_MAX where the tensors tell it.
   Call qn_safetensors_close in any case. */
int qn_safetensors_parse(struct qn_safetensors *, const char *label,
                         char *header, size_t header_bytes,
                         uint64_t data_bytes);

/* Open a file and check its header. Call qn_safetensors_close in any case. */
int qn_safetensors_open(struct qn_safetensors *, const char *path);
void qn_safetensors_close(struct qn_safetensors *);

/* NULL: none has that name. */
const struct qn_safetensor *qn_safetensors_find(const struct qn_safetensors *,
                                                const char *name);

/* A text of the header's __metadata__; NULL: it has none of that name. */
const char *qn_safetensors_metadata(const struct qn_safetensors *,
                                    const char *name);

/* Read a part of a tensor. A file that became shorter is an error. */
int qn_safetensors_read(const struct qn_safetensors *,
                        const struct qn_safetensor *, uint64_t at, void *buffer,
                        size_t bytes);

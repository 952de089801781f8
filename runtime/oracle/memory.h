/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: buffers of the host or of a GPU, with guards on both sides. */
#pragma once

#include <stddef.h>

struct qn_gpu;

enum {
    QN_MEMORY_GUARD = 1 << 12, /* bytes before and after the data */
    QN_MEMORY_POISON = 0xA5    /* in fresh data and in the guards */
};

/* All zero is a buffer that does not exist. */
struct qn_memory {
    struct qn_gpu *gpu; /* NULL: host memory */
    char *base;         /* of the first guard */
    char *data;         /* an address of the device if gpu is set */
    size_t bytes;       /* of the contents, which offsets count */
    /* 0: without gaps; else the contents are matrices of that many bytes, each
       at a multiple of the pitch, with poison between them */
    size_t matrix, pitch;
};

/* Codes are those of the library; messages are left as it leaves them. */
int qn_memory_new(struct qn_memory *, struct qn_gpu *, size_t bytes);
int qn_memory_matrices(struct qn_memory *, struct qn_gpu *, size_t bytes,
                       size_t count, size_t alignment);
void qn_memory_free(struct qn_memory *);

int qn_memory_write(struct qn_memory *, size_t at, const void *, size_t bytes);
int qn_memory_read(const struct qn_memory *, size_t at, void *, size_t bytes);
int qn_memory_clear(struct qn_memory *, unsigned char value);

/* A workspace before its first run: NaN but for the bytes that must be zero. */
void qn_memory_begin(void *workspace, size_t bytes);
int qn_memory_workspace(struct qn_memory *);

/* Sets `*intact` to 1 if no byte of either guard and between matrices was
   written. */
int qn_memory_guards(const struct qn_memory *, int *intact);

/* Sets `*same` to 1 if both of the same size have the same bytes. */
int qn_memory_same(const struct qn_memory *, const struct qn_memory *,
                   int *same);

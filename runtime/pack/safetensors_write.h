/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.h: files that come into being as a whole, or not at all. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A file without a name, or with one that begins with '.', in the folder of
   its path. */
struct qn_safetensors_out {
    char *path;
    char *temporary; /* NULL: no name yet */
    int file;        /* -1: none */
    int published;
    uint64_t data; /* where data begin */
};

/* Write the length and the header; `data_bytes` follow, zeros at first. Call
   qn_safetensors_discard in any case. */
int qn_safetensors_create(struct qn_safetensors_out *, const char *path,
                          const char *header, size_t header_bytes,
                          uint64_t data_bytes);

/* Write some of the data. */
int qn_safetensors_write(const struct qn_safetensors_out *, uint64_t at,
                         const void *buffer, size_t bytes);

/* Store all of it and give it its path, where there must be no file. */
int qn_safetensors_publish(struct qn_safetensors_out *);

/* Take back a path that publish gave. */
void qn_safetensors_withdraw(struct qn_safetensors_out *);

/* Free it; a file that was not published is removed. */
void qn_safetensors_discard(struct qn_safetensors_out *);

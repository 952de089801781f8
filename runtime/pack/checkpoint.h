/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h: the tensors of a model in one or more files, and its
   config.json. */
#pragma once

#include "oracle/config.h"
#include "pack/safetensors.h"

/* One of all files' tensors. */
struct qn_checkpoint_tensor {
    const struct qn_safetensor *t;
    int file;
    int used; /* an operand has its bytes */
};

struct qn_checkpoint {
    struct qn_safetensors *files; /* with names in one folder */
    int nfiles;
    struct qn_checkpoint_tensor *tensors; /* by name */
    int count;
    int configured;          /* there is a config.json */
    struct qn_config config; /* of it */
    double limit;            /* its swiglu_limit; 0: none */
    int zeros_as_they_are;   /* GPTQ's second format: not one less */
};

/* Open files, or all *.safetensors of folders; a config.json is that of the
   first folder. QUERN_EINVAL: qn_error_text names the file and the rule. Call
   qn_checkpoint_close in any case. */
int qn_checkpoint_open(struct qn_checkpoint *, char *const *paths, int count);

/* List the tensors of `files`, which are set: by name, each once. */
int qn_checkpoint_list(struct qn_checkpoint *);
void qn_checkpoint_close(struct qn_checkpoint *);

/* NULL: none has that name. */
struct qn_checkpoint_tensor *qn_checkpoint_find(const struct qn_checkpoint *,
                                                const char *name);

/* "FILE: tensor 'NAME': RULE", as QUERN_EINVAL. */
int qn_checkpoint_wrong(const struct qn_checkpoint *,
                        const struct qn_checkpoint_tensor *, const char *format,
                        ...) __attribute__((format(printf, 3, 4)));

int qn_checkpoint_read(const struct qn_checkpoint *,
                       const struct qn_checkpoint_tensor *, uint64_t at,
                       void *buffer, size_t bytes);

/* The file's name without folders. */
const char *qn_checkpoint_name(const struct qn_safetensors *file);

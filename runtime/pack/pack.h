/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack.h: experts of checkpoints as quern's operands, and back.
**
** A plan lists the tensors of the new file. Each is a tensor of the checkpoint
** as it is, or matrices that are put together from parts, which are matrices
** of the checkpoint. A part only moves elements, so it has an inverse: undo
** makes the same plan from the checkpoint's headers, which the new file has,
** and runs its parts backwards. Memory has two matrices of an expert at most.
*/
#pragma once

#include "internal.h"
#include "pack/checkpoint.h"

enum { QN_PACK_ROLES = 3 };                /* gate, up, down */
#define QN_PACK_MATRIX ((uint64_t)1 << 31) /* bytes at most */

/* Element i of an axis is (i / unit) * outer + order[i % unit] * inner elements
   from the first; order NULL is 0, 1, 2, ... */
struct qn_pack_axis {
    int64_t unit, outer, inner;
    const unsigned char *order;
};

struct qn_pack_layout {
    struct qn_pack_axis rows, columns;
};

/* Elements of one matrix that become a part of another one. */
struct qn_pack_part {
    struct qn_checkpoint_tensor *from;
    uint64_t at, bytes; /* in that tensor */
    struct qn_pack_layout source, target;
    int64_t rows, columns;
    int64_t target_at; /* elements before the target's first */
    int bits;          /* of an element: 4, 8, 16, 32 */
    int target_bits;   /* of the target's; 0: as many */
    unsigned flip;     /* bits that change */
    unsigned add;      /* to the source, for the target */
};

/* A tensor of the new file. */
struct qn_pack_output {
    char *name;
    int type, ndim; /* as of struct qn_safetensor */
    int64_t shape[QN_SAFETENSORS_DIMS];
    uint64_t begin, bytes;
    int matrices;
    struct qn_pack_part *parts; /* nparts of each matrix */
    int nparts;
    const struct qn_checkpoint_tensor *copied; /* as it is, else NULL */
    const struct qn_safetensors *header;       /* of this file, else NULL */
};

/* The experts of a layer. Texts live as the plan. */
struct qn_pack_layer {
    char *name;
    const char *recipe, *activation;
    int experts, interleave, bias;
    int64_t hidden, ffn;
    uint64_t bytes; /* of its operands */
};

/* A rule for the values of a tensor, tried before anything is written. */
struct qn_pack_check {
    const struct qn_checkpoint_tensor *tensor;
    const struct qn_checkpoint_tensor *other;
    const struct qn_checkpoint_tensor *codes; /* of MXFP4, 32 for a scale */
    int bits;                                 /* of an element */
    int64_t value;
    int (*holds)(const struct qn_pack_check *, uint64_t index,
                 uint32_t element);
    const char *rule; /* may have one %lld, of `value` */
};

struct qn_format;

struct qn_pack_options {
    const char *format;     /* NULL or "auto": the one that the tensors have */
    const char *experts_of; /* a pattern of layers' names; NULL: all */
    const char *recipe;     /* NULL: the format's */
    int zeros_as_they_are;  /* as of the checkpoint, for undo */
};

struct qn_pack {
    struct quern_context *ctx;
    struct qn_checkpoint *checkpoint;
    const struct qn_format *format;
    const char *recipe, *experts_of;
    struct qn_pack_layer *layers;
    int nlayers;
    struct qn_pack_output *outputs;
    int noutputs;
    struct qn_pack_check *checks;
    int nchecks;
    uint64_t bytes; /* of all outputs */
};

/* Told of each of `total` outputs before it is written; may be NULL. */
typedef void qn_pack_step(void *user, int total, const char *name);

/* Plan the checkpoint, which lives longer. Reads headers only. QUERN_EINVAL:
   qn_error_text names file, tensor and rule. Call qn_pack_free in any case. */
int qn_pack_plan(struct qn_pack *, struct quern_context *,
                 struct qn_checkpoint *, const struct qn_pack_options *);
void qn_pack_free(struct qn_pack *);

/* Try all rules of values. */
int qn_pack_check(const struct qn_pack *);

/* Write the new file, which must not exist: as a whole or not at all. */
int qn_pack_write(const struct qn_pack *, const char *path, qn_pack_step *,
                  void *user);

/* Write the files of the checkpoint again, byte for byte, into a folder, which
   is made if it is not there. */
int qn_pack_undo(struct quern_context *, const char *path, const char *folder,
                 int *files, uint64_t *bytes, qn_pack_step *, void *user);

/* ------------------------------------------------------------- for formats */

/* pack_plan.c: new rows of the plan; NULL and an error without memory. */
struct qn_pack_layer *qn_pack_layer(struct qn_pack *, const char *name);
struct qn_pack_output *qn_pack_output(struct qn_pack *, const char *layer,
                                      const char *name);
int qn_pack_part(struct qn_pack_output *, const struct qn_pack_part *);

/* pack_check.c: rules that tensors' values must obey. */
int qn_pack_check_numbers(struct qn_pack *,
                          const struct qn_checkpoint_tensor *);
int qn_pack_check_e8m0(struct qn_pack *, const struct qn_checkpoint_tensor *);
int qn_pack_check_zeros(struct qn_pack *, const struct qn_checkpoint_tensor *,
                        int code);
int qn_pack_check_more_zeros(struct qn_pack *,
                             const struct qn_checkpoint_tensor *);
int qn_pack_check_order(struct qn_pack *, const struct qn_checkpoint_tensor *,
                        int64_t group);
int qn_pack_check_shape(struct qn_pack *, const struct qn_checkpoint_tensor *,
                        int64_t rows, int64_t columns);
int qn_pack_check_nothing(struct qn_pack *,
                          const struct qn_checkpoint_tensor *);
int qn_pack_check_same(struct qn_pack *, const struct qn_checkpoint_tensor *,
                       const struct qn_checkpoint_tensor *other);

/* `scales` [experts, rows, k/32] and codes of MXFP4. */
int qn_pack_check_rebased(struct qn_pack *,
                          const struct qn_checkpoint_tensor *scales,
                          const struct qn_checkpoint_tensor *codes);

/* rebased.c: try it. */
int qn_rebased_try(const struct qn_pack *, const struct qn_pack_check *);

/* pack_move.c: all elements of a part, or back. */
int qn_pack_move(const struct qn_pack_part *, unsigned char *source,
                 unsigned char *target, int back);

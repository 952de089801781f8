/* SPDX-License-Identifier: Apache-2.0 */
/* format.h: the formats of checkpoints that are known, each in a file. */
#pragma once

#include "pack/pack.h"

/* A matrix of the checkpoint with its scales. */
struct qn_format_piece {
    int64_t rows, k; /* of the weight: output features, input features */
    struct qn_checkpoint_tensor *codes, *scales, *global; /* global or NULL */
    uint64_t codes_at, scales_at;       /* bytes before the first one */
    uint64_t codes_bytes, scales_bytes; /* 0: all of the tensor */
    struct qn_pack_layout code, scale;
    unsigned flip;
    struct qn_checkpoint_tensor *zeros; /* to be stored, or NULL */
    struct qn_pack_layout zero;
    unsigned zero_add; /* zero points are so much more than codes */
};

struct qn_format {
    const char *name;
    const char *title;  /* for people */
    const char *recipe; /* the operands' */
    const char *zeros;  /* the part with zero points, or NULL; those that differ
                           need the recipe `stored` */
    const char *stored;
    int less; /* elements are so much less than zero points, at first */
    const char *codes; /* the end of the name of a tensor with codes */
    /* Has the tensor, whose name ends so, codes of this format? */
    int (*is)(const struct qn_checkpoint *,
              const struct qn_checkpoint_tensor *);
    /* Plan all layers; most call qn_expert_plan. */
    int (*plan)(struct qn_pack *);
    /* The piece of the weight called "NAME", with shapes and types checked. */
    int (*piece)(struct qn_pack *, const char *name, struct qn_format_piece *);
};

extern const struct qn_format qn_format_gpt_oss, qn_format_gpt_oss_original,
    qn_format_deepseek, qn_format_nvfp4, qn_format_gptq, qn_format_awq,
    qn_format_compressed;

/* The format of that name, NULL or "auto": the only one that a tensor has. */
int qn_format_find(const struct qn_checkpoint *, const char *name,
                   const struct qn_format **);

/* The tensor "NAME.PART", of that type and shape: any of ndim axes where shape
   is NULL, and of any axes where ndim is -1. */
int qn_format_tensor(const struct qn_pack *, const char *name, const char *part,
                     int type, int ndim, const int64_t *shape,
                     struct qn_checkpoint_tensor **tensor);

/* The tensor with another last part of the name, or NULL. */
const struct qn_checkpoint_tensor *
qn_format_sibling(const struct qn_checkpoint *,
                  const struct qn_checkpoint_tensor *, const char *part,
                  const char *other);

/* Scales of integers in groups along k, "scales" f16 or bf16 [groups, n]; the
   other fields of the piece are set. */
int qn_format_integers(struct qn_pack *, const char *name,
                       struct qn_format_piece *, int64_t *groups);

/* Scales of 16 bits, whose groups are along the axis; how many is theirs to
   say. */
int qn_format_scales(struct qn_pack *, const char *name, const char *part,
                     int axis, struct qn_format_piece *, int64_t *groups);

/* Do `groups` scales of each row fit the codes and the recipe? */
int qn_format_fit(struct qn_pack *, const struct qn_format_piece *,
                  int64_t groups);

/* A matrix row after row, `pitch` elements each. */
struct qn_pack_layout qn_format_rows(int64_t pitch);

/* ------------------------------------------------------------------- weight */

/* weight.c: one weight of a layer in quern's form. */
struct qn_weight {
    struct qn_pack *pack;
    const char *layer, *name; /* "w1" */
    int experts;
    int64_t rows, k;
    int bits, scale_bits;        /* of an element */
    int64_t block_rows, block_k; /* values that share a scale */
    int64_t pitch;               /* elements of a row */
    struct qn_pack_layout scale;
    int codes, scales, global; /* the outputs' indices; global -1: none */
};

/* Describe "fprop RECIPE" of these sizes and add its outputs LAYER.NAME, .sf
   and .global. */
int qn_weight_add(struct qn_weight *, struct qn_pack *, const char *layer,
                  const char *name, int experts, int64_t rows, int64_t k);

/* Put a piece of the next expert at its first row. */
int qn_weight_put(const struct qn_weight *, int64_t first,
                  const struct qn_format_piece *);

/* Are the values of the recipe's weights of that type, and do as many share a
   scale of that type? EINVAL names the tensor. */
int qn_weight_fits(const struct qn_pack *, const struct qn_checkpoint_tensor *,
                   unsigned types, int scale_type, int64_t block_rows,
                   int64_t block_k);

/* Must another type hold the values of the recipe's weights, too? */
int qn_weight_rebased(const struct qn_pack *);

/* The code of 0 in the recipe's weights, before `*flip` turns its bits; -1:
   each block has its own. */
int qn_weight_zero(const struct qn_pack *, unsigned *flip);

/* -------------------------------------------------------------------- zeros */

/* zeros.c: zero points of four bits, one for each scale of the piece, which are
   stored, or must be the recipe's. */
int qn_zeros_add(struct qn_pack *, struct qn_format_piece *,
                 struct qn_checkpoint_tensor *zeros,
                 struct qn_pack_layout layout);

/* The same where there are none: all of them are 8. */
int qn_zeros_none(struct qn_pack *, struct qn_format_piece *);

/* The recipe for the checkpoint's values where none is named: one with zero
   points if some are not 8. */
int qn_zeros_recipe(const struct qn_checkpoint *, const struct qn_format *,
                    const char **recipe);

/* expert.c: formats with three tensors for each expert. */
int qn_expert_plan(struct qn_pack *);

/* Is it the name of an expert's PART? */
int qn_expert_has(const char *name, const char *part);

/* Does a layer's name match the pattern of the plan? */
int qn_expert_wanted(const struct qn_pack *, const char *layer);

/* Sizes and the activation of a layer, by the checkpoint's config.json if there
   is one, which must agree. */
int qn_expert_layer(struct qn_pack *, const struct qn_checkpoint_tensor *,
                    const char *name, int experts, int64_t hidden, int64_t ffn,
                    const char *activation);

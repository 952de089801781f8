/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h: rules of quantizations, and derived values. */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <string.h>

struct quern_context;

/* The offsets of the workspace's parts, after the error record. The part that
   is cleared before each run ends where the partial sums begin. */
struct qn_quantize_space {
    size_t row_amax, column_amax, partials, sizes, end;
};

/* A quantization of nothing; runs come here, so `split` only gets its end. */
static inline void qn_quantize_clear(struct qn_quantization *q)
{
    memset(q, 0, offsetof(struct qn_quantization, split) + 1);
}

/* Are the scales of a row and a columnwise tensor the same values, so that
   both may share one buffer? Those of blocks and rows follow the copy's own
   axis. */
int qn_quantize_same_sf(const struct qn_scaling *scaling);

/* How the recipe scales the tensor. */
const struct qn_scaling *qn_quantize_scaling(const struct qn_quantization *q,
                                             const struct qn_recipe *recipe);

/* The type of its values. */
int qn_quantize_element(const struct qn_quantization *q,
                        const struct qn_recipe *recipe);

/* Is the largest magnitude needed before the first value can be quantized? */
int qn_quantize_needs_amax(const struct qn_quantization *q,
                           const struct qn_scaling *scaling);

/* Is there args.bias: to be added, or the factor of probabilities? */
int qn_quantize_has_bias(const struct qn_quantization *q);

/* Values of the tensor, all groups together. */
double qn_quantize_values(const struct qn_quantization *q);

/* Tiles of 128 rows that the groups have at most. */
int64_t qn_quantize_tiles(const struct qn_quantization *q);

/* The most rows of which a columnwise tensor has so many columns; -1: of
   none. */
int64_t qn_quantize_tokens(int64_t columns, int groups);

/* Blocks of `size` in a length, and the length of as many whole ones. */
int64_t qn_quantize_ceil_div(int64_t length, int64_t size);
int64_t qn_quantize_round_up(int64_t length, int64_t size);

/* Lines of a block that share a line of stored scales: tiles have one for each,
   as hardware reads them. */
int qn_quantize_lines(const struct qn_scaling *scaling);

/* Rows, or columns, of scales that a matrix of its own has for each 128 of the
   group's: padded, so that where it begins follows from the groups before. */
int64_t qn_quantize_tile_rows(const struct qn_scaling *scaling);
int64_t qn_quantize_tile_columns(const struct qn_scaling *scaling);

/* The layout of a copy's scales (enum quern_copies). */
struct qn_scale_shape {
    int ndim;
    int64_t shape[QUERN_MAX_DIMS]; /* outermost axis first; tiles have an axis
                                      of 512 scales more */
    int64_t pitch; /* from one line to the next; 0: of blocks, where each group
                      has a matrix of its own size, else where there are none */
    int tiled; /* 0: a group begins at its first row, else after so many lines
                  (of a columnwise tensor blocks) for each tile of 128 rows */
};
void qn_quantize_scales(const struct qn_quantization *q,
                        const struct qn_scaling *scaling, int copy,
                        struct qn_scale_shape *shape);

/* 0 if some size of it could pass 64 bits. Lengths are at most 2^31. */
int qn_quantize_fits(const struct qn_quantization *q);

/* Two or three axes, and the bytes of rows with a stride of `stride`
   elements. */
void qn_quantize_shape(struct qn_tensor *tensor, int type, int64_t groups,
                       int64_t rows, int64_t columns, int64_t stride);

/* A copy (enum quern_copies) and its scales: all of `tensor` but addresses. */
void qn_quantize_copy(const struct qn_quantization *q,
                      const struct qn_recipe *recipe, int copy,
                      struct qn_tensor *tensor);

/* All rules on a quantization. QUERN_EINVAL names field and rule. */
int qn_quantize_check(struct quern_context *ctx,
                      const struct qn_quantization *q,
                      const struct qn_recipe **recipe);

/* The workspace of its runs. */
void qn_quantize_lay_out(const struct qn_quantization *q,
                         const struct qn_recipe *recipe,
                         struct qn_quantize_space *space);

/* And all that follows from it; any of the last three may be NULL. */
int qn_quantize_describe(struct quern_context *ctx,
                         const struct qn_quantization *q,
                         struct qn_quantize_description *description,
                         struct qn_quantize_space *space,
                         const struct qn_recipe **recipe);

/* The op that makes the result. */
int qn_quantize_op(const struct qn_quantization *q);

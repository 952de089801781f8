/* SPDX-License-Identifier: Apache-2.0 */
/*
** dequantize_rules.h: products whose operands become bf16 or f16 before they
** are multiplied.
**
** If tensor cores do not support scales of blocks, an operand's codes times
** their scales are rounded to the type of the other one's values, and to bf16
** where both have scales. A kernel can do that next to the product;
** here it is done by launches before it, into the workspace: the very values,
** which a kernel of 16-bit products then reads as if they had never been
** quantized. Scales of the second level go into alpha. Before that, FP8 may be
** tried (requantize_rules.h), or f16 next to the product (range_rules.h): then
** flags on the device say which of both products runs.
*/
#pragma once

#include "internal.h"

struct quern_context;

/* The layout of the workspace, and its end. */
struct qn_dequantize_space {
    size_t brought;    /* int32 [G]: sizes from the host, after the
                          product's partial sums */
    size_t factors;    /* fp32 [2][G]: alpha and beta */
    size_t sizes;      /* int32 [2 G + 1]: lengths and offsets of tokens */
    size_t count;      /* int32: tokens, of which a product gathers rows */
    size_t flags;      /* of the product that is tried, and of that in 16 bits:
                          do nothing where it is not 0; then QN_F16_BASES */
    size_t operand[2]; /* A and B, where they are scaled */
    /* in the same bytes, since they are read before those are written */
    size_t codes[2], scales[2]; /* A and B in FP8 */
    size_t end;
};

/* The expected time of a strategy: bytes that the launches before the product
   read and write, their cycles, and with the product; no cycles: it cannot be,
   or not here. */
struct qn_dequantize_cost {
    double bytes, moving, cycles;
};

/* The recipe of the product, whose values are bf16 and have no scales; NULL:
   none is known. */
const struct qn_recipe *qn_dequantize_plain(const struct quern_context *ctx);

/* The same of values of another type. */
const struct qn_recipe *qn_dequantize_plain_of(const struct quern_context *ctx,
                                               int type);

/* The type of values into which operands with scales are dequantized: that of
   one without, and of two with scales QUERN_BF16. */
int qn_dequantize_type(const struct qn_problem *problem,
                       const struct qn_recipe *recipe);

/* Why the problem cannot use that strategy (enum quern_dequantize from PASS
   on); NULL: it can. */
const char *qn_dequantize_wrong(struct quern_context *ctx,
                                const struct qn_problem *problem,
                                const struct qn_recipe *recipe, int strategy);

/* QUERN_EINVAL says why a problem with dequantize=pass, fp8 or f16 cannot
   be. */
int qn_dequantize_check(struct quern_context *ctx,
                        const struct qn_problem *problem,
                        const struct qn_recipe *recipe);

/* May a plan of the problem use that strategy? Only by the problem and the
   recipe, so that descriptions need no GPU: whether it does the GPU's kernels
   decide. Some of these are so slow that a pass pays for one row of each group
   (bench/notes: layer-mxfp8). */
int qn_dequantize_may(struct quern_context *ctx,
                      const struct qn_problem *problem,
                      const struct qn_recipe *recipe, int strategy);

/* The workspace of such a plan; `target`: of FP8, or NULL. */
void qn_dequantize_lay_out(const struct qn_problem *problem,
                           const struct qn_recipe *recipe,
                           const struct qn_recipe *target,
                           struct qn_dequantize_space *space);

/* The largest of all plans that the problem may have; 0: none has any. */
size_t qn_dequantize_end(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         const struct qn_recipe *recipe);

/* The dequantize pass of operand `role` as a quantization, whose copy is read;
   0: the operand is bf16 as it is. */
int qn_dequantize_cast(const struct qn_problem *problem,
                       const struct qn_recipe *recipe, int role,
                       struct qn_quantization *q);

/* The product of the dequantized operands. */
void qn_dequantize_product(struct quern_context *ctx,
                           const struct qn_problem *problem,
                           const struct qn_recipe *recipe,
                           struct qn_problem *product);

/* The product that runs first, which a plan tells of: of FP8 or f16 where that
   is tried, and of `strategy` MAINLOOP the problem itself. */
void qn_dequantize_first(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         const struct qn_recipe *recipe, int strategy,
                         struct qn_problem *product);

/* Is the operands' second level to be multiplied? */
int qn_dequantize_factors(const struct qn_problem *problem,
                          const struct qn_recipe *recipe);

/* If tokens are summed, groups keep their positions in the quantized tensors,
   and their lengths become multiples of this: transformed values go on past a
   group's end. Else 0. */
int qn_dequantize_align(const struct qn_problem *problem,
                        const struct qn_recipe *recipe);

/* The product's length along the ragged axis. */
int64_t qn_dequantize_total(const struct qn_problem *problem,
                            const struct qn_recipe *recipe);

/* Do both become values of 16 bits in launches before the product? */
int qn_dequantize_dequantizes(const struct qn_problem *problem,
                              const struct qn_recipe *recipe);

/* The cost of the launches before the product; no cycles yet. `memory` is the
   rate of the GPU's memory: 1 for an H200's. */
struct qn_dequantize_cost
qn_dequantize_cost_of(const struct qn_problem *problem,
                      const struct qn_recipe *recipe, int strategy,
                      double memory);

#define QN_FMA_PER_CYCLE 2048.0 /* dense 16-bit, one multiprocessor */

/* SPDX-License-Identifier: Apache-2.0 */
/*
** epilogue_rules.h: a bias, an activation or adapters that no kernel fuses with
** their product.
**
** The product leaves alpha * A * B in fp32 in the workspace. A launch of its
** own makes D of that, P, and the sums for dbias and dprob: the bytes of a
** kernel that fuses the epilogue and has the same sums. Operands that may be
** dequantized can be multiplied by a kernel of bf16 instead, which fuses it. If
** the recipe writes no fp32, the sums are those of dequantized operands.
** Adapters have a product of their own, which adds to the sums.
*/
#pragma once

#include "internal.h"

struct quern_context;

/* Has the problem a bias, an activation or adapters? */
int qn_epilogue_has(const struct qn_problem *problem);

/* Has it, and no fp32 sums that a launch of its own could follow? Kernels may
   fuse it all the same. */
int qn_epilogue_lacks_sums(const struct qn_problem *problem,
                           const struct qn_recipe *recipe);

/* May its product leave sums in fp32? */
int qn_epilogue_has_sums(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         const struct qn_recipe *recipe);

/* The product without its epilogue, whose D are its sums in fp32. */
void qn_epilogue_product(const struct qn_problem *problem,
                         const struct qn_recipe *recipe,
                         struct qn_problem *product);

/* The problem with dequantized operands; 0: it cannot be. */
int qn_epilogue_dequantized(struct quern_context *ctx,
                            const struct qn_problem *problem,
                            const struct qn_recipe *recipe,
                            struct qn_problem *dequantized);

/* Bytes of its sums; their position in the workspace, of which the product uses
   so many bytes, and this returns the end. */
size_t qn_epilogue_sums(const struct qn_problem *problem);
size_t qn_epilogue_lay_out(const struct qn_problem *problem, size_t product,
                           size_t *sums);

/* The end of the workspace of all such plans. */
size_t qn_epilogue_end(struct quern_context *ctx,
                       const struct qn_problem *problem,
                       const struct qn_recipe *recipe);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** requantize_rules.h: products whose operands become FP8 before they are
** multiplied.
**
** A scale of e8m0 is a power of two, and so an e2m1 value under it is one of
** e4m3 under another power of two, so long as the two are not too far apart: r
** from -8 to 6 of 2^r. One scale for 128 values of k, in fp32, suits the
** two-level accumulation of FP8 tensor cores. Only the data decide whether
** all values fit; if they do not, a flag on the device leaves that product out,
** and the one of bf16 (dequantize_rules.h) replaces it.
*/
#pragma once

#include "internal.h"

struct quern_context;

/* The recipe of the product: e4m3 throughout, scaled as the launches before it
   write scales; NULL: none is known. */
const struct qn_recipe *qn_requantize_blocks(const struct quern_context *ctx);

/* Why the problem's values are not to be had in FP8; NULL: they may be. Reasons
   against bf16 are not checked: see dequantize_rules.h. */
const char *qn_requantize_wrong(const struct quern_context *ctx,
                                const struct qn_problem *problem,
                                const struct qn_recipe *recipe);

/* Is operand `role` encoded again? Else it is FP8 in blocks as it is. */
int qn_requantize_does(const struct qn_problem *problem,
                       const struct qn_recipe *recipe, int role);

/* The product of requantized operands. */
void qn_requantize_product(const struct quern_context *ctx,
                           const struct qn_problem *problem,
                           struct qn_problem *product);

/* Operand `role` of it: all but addresses. */
void qn_requantize_copy(const struct qn_problem *problem,
                        const struct qn_recipe *blocks, int role,
                        struct qn_tensor *copy);

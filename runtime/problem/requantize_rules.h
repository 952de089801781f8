/* SPDX-License-Identifier: Apache-2.0 */
/*
** requantize_rules.h: products whose operands become FP8 before they are
** multiplied.
**
** A scale of e8m0 is a power of two, and so an e2m1 value under it is one of
** e4m3 under another power of two, so long as the two are not too far apart: r
** from -8 to 6 of 2^r. One scale for 128 values of k, in fp32, suits the
** two-level accumulation of FP8 tensor cores; weights next to tokens that are
** FP8 with a scale for each row have one for all of theirs. Only the data
** decide whether all values fit; if they do not, a flag on the device leaves
** that product out, and another one replaces it: of bf16, or of the mainloop
** where tokens are FP8 (dequantize_rules.h).
*/
#pragma once

#include "internal.h"

struct quern_context;

/* The recipe of the product, e4m3 throughout: with blocks of 128, or for a
   recipe of `as` = e4m3 with rows; NULL: none is known. */
const struct qn_recipe *qn_requantize_target(const struct quern_context *ctx,
                                             const struct qn_recipe *recipe);

/* Are the recipe's own products summed like those of requantized operands? So
   it is with `as` = e4m3 where Hopper multiplies FP8: the sums differ by powers
   of two only, and results in no bit. */
int qn_requantize_sums(const struct qn_recipe *recipe);

/* Why the problem's values are not to be had in FP8; NULL: they may be. Reasons
   against bf16 are not checked: see dequantize_rules.h. */
const char *qn_requantize_wrong(const struct quern_context *ctx,
                                const struct qn_problem *problem,
                                const struct qn_recipe *recipe);

/* Is operand `role` encoded again? Else it is such FP8 as it is. */
int qn_requantize_does(const struct qn_problem *problem,
                       const struct qn_recipe *recipe, int role);

/* The product of requantized operands. */
void qn_requantize_product(const struct quern_context *ctx,
                           const struct qn_problem *problem,
                           const struct qn_recipe *recipe,
                           struct qn_problem *product);

/* Operand `role` of it: all but addresses. */
void qn_requantize_copy(const struct qn_problem *problem,
                        const struct qn_recipe *target, int role,
                        struct qn_tensor *copy);

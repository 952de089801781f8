/* SPDX-License-Identifier: Apache-2.0 */
/*
** range_rules.h: products whose operands become f16 next to them.
**
** The kernels that dequantize codes of e4m3 as they multiply take five
** instructions for a pair as bf16 and two as f16, which is exact where the
** scales of an operand are not too far apart. Only the data decide
** that: a launch before checks the scales, and if some value does not fit, a
** flag on the device leaves the product out, and the same kernels' product as
** bf16 replaces it.                     COUPLED: f16
*/
#pragma once

#include "internal.h"

/* Why the problem's values are not to be had as f16; NULL: they may be. */
const char *qn_range_wrong(const struct qn_problem *problem,
                           const struct qn_recipe *recipe);

/* The product that is tried. */
void qn_range_product(const struct qn_problem *problem,
                      struct qn_problem *product);

/* Bytes that the launch before it reads: all scales. */
double qn_range_bytes(const struct qn_problem *problem,
                      const struct qn_recipe *recipe);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** lora_rules.h: rules on products with low-rank adapters.
**
**     t = lora_scale * A D^T              D [rank, k] of each group
**     D = alpha * (A B^T + t U^T)         U [n, rank] of each group
**
** A launch of its own makes t, rounded once to A's type. In fprop D is lora_a
** and U lora_b; in dgrad D is lora_b and U lora_a, both as they are in memory.
*/
#pragma once

#include "internal.h"

/* The largest rank. */
enum { QN_LORA_MOST = 256 };

/* QUERN_EINVAL names key and rule. */
int qn_lora_problem(struct quern_context *ctx, const struct qn_problem *problem,
                    const struct qn_recipe *recipe);

/* The product whose D is t; and the one of t and U, whose D are sums in fp32
   that it adds to. */
void qn_lora_down(struct quern_context *ctx, const struct qn_problem *problem,
                  struct qn_problem *down);
void qn_lora_up(struct quern_context *ctx, const struct qn_problem *problem,
                struct qn_problem *up);

/* D and U of a run, and the place of U in its arguments. */
size_t qn_lora_up_place(const struct qn_problem *problem);
const struct qn_tensor *qn_lora_down_of(const struct qn_problem *problem,
                                        const struct qn_args *args);
const struct qn_tensor *qn_lora_up_of(const struct qn_problem *problem,
                                      const struct qn_args *args);

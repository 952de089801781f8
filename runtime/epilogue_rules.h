/*
** epilogue_rules.h: what plans of an epilogue's own launch are made of.
**
** SPDX-License-Identifier: Apache-2.0
*/
#ifndef QUERN_EPILOGUE_RULES_H
#define QUERN_EPILOGUE_RULES_H

#include "context.h"

/* The product without its epilogue, whose D are its sums in fp32. */
void qn_epilogue_product(const struct quern_problem *problem,
                         struct quern_problem *product);

/* The problem with dequantized operands; 0: it cannot be. */
int qn_epilogue_dequantized(struct quern_context *ctx,
                            const struct quern_problem *problem,
                            const struct qn_recipe *recipe,
                            struct quern_problem *dequantized);

/* The place of its sums in the workspace, and their bytes. */
size_t qn_epilogue_begin(struct quern_context *ctx,
                         const struct quern_problem *problem,
                         const struct qn_recipe *recipe);
size_t qn_epilogue_sums(const struct quern_problem *problem);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** result_rules.h: a product's result as copies of an x, or of dgrad as copies
** of a dy: D is the rowwise tensor, T the other.
**
** If a kernel makes them, they leave the product's own launch. Else a plan is
** of two: the product, whose D is unquantized in the workspace, and the cast
** that reads these. Both strategies round the result to the type of D before
** they quantize it, so that both make the same bytes of the same sums.
*/
#pragma once

#include "internal.h"

struct quern_context;

/* The quantization of the result that operand `role` is a copy of, and its
   scaling; NULL unless that is D or T and the problem wants copies. */
const struct qn_scaling *qn_result_source(const struct qn_problem *problem,
                                          const struct qn_recipe *recipe,
                                          int role, struct qn_quantization *q);

/* Why the problem, which wants copies, cannot have them; or NULL. */
const char *qn_result_wrong(const struct qn_problem *problem,
                            const struct qn_recipe *recipe);

/* Why no kernel can make them of a tile of results; or NULL. */
const char *qn_result_apart(const struct qn_problem *problem,
                            const struct qn_recipe *recipe);

/* The workspace's part of the cast, and of the unquantized result; the
   product's part comes first. */
struct qn_result_space {
    size_t cast, numbers, end;
};

/* The product without its copies. */
void qn_result_product(const struct qn_problem *problem,
                       struct qn_problem *product);

/* The cast of its result. */
void qn_result_cast(const struct qn_problem *problem,
                    const struct qn_recipe *recipe, struct qn_quantization *q);

/* The rest of the workspace, after the product's part. */
void qn_result_lay_out(const struct qn_problem *problem,
                       const struct qn_recipe *recipe, size_t begin,
                       struct qn_result_space *space);

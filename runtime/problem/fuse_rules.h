/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_rules.h: products that quantize an operand. If the problem says
   quantize=, a run gets A's values and quantizes them in the product's
   mainloop or in a launch before it, which writes the columnwise tensor too if
   it is wanted. */
#pragma once

#include "internal.h"

struct quern_context;

/* How a kernel gets A: enum quern_quantize, but for ANY. */
int qn_fuse_strategy(const struct qn_kernel *kernel);

/* Is a kernel of this field `quantize` one for such a problem, and is it the
   strategy that the problem names? */
int qn_fuse_serves(int wanted, const char *quantize);
int qn_fuse_wanted(int wanted, const struct qn_kernel *kernel);

/* All rules on the field `quantize`. QUERN_EINVAL. */
int qn_fuse_problem(const struct qn_problem *problem,
                    const struct qn_recipe *recipe);

/* Does the problem want the sums of the tensor that a run quantizes? */
int qn_fuse_sums(const struct qn_problem *problem);

/* The workspace of such a problem after the sums of a product with an
   activation backward: the cast's part, and a launch for sums that no cast
   makes. */
struct qn_fuse_space {
    size_t cast, sums, end;
};

void qn_fuse_lay_out(const struct qn_problem *problem,
                     const struct qn_recipe *recipe,
                     struct qn_fuse_space *space);

/* Further inputs and outputs of such a problem: values and a columnwise tensor.
   Nothing of other problems. */
int qn_fuse_describe(struct quern_context *ctx,
                     const struct qn_problem *problem,
                     const struct qn_recipe *recipe,
                     struct qn_description *description);

/* The quantized A that the run makes. */
void qn_fuse_quantization(const struct qn_problem *problem,
                          const struct qn_recipe *recipe,
                          struct qn_quantization *q);

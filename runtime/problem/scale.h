/* SPDX-License-Identifier: Apache-2.0 */
/* scale.h: which of a recipe's copies a product reads, and how their scales
   are. */
#pragma once

#include "internal.h"

/* The scales of one operand. */
struct qn_scales {
    const struct qn_scaling *scaling; /* NULL: values as they are */
    int copy;                         /* enum quern_copies */
    int of_values; /* not factors of sums: see qn_scale_of_values */
    int64_t stride, group_stride; /* as QN_PARAMS defines them */
    int64_t rows, lines;          /* the extent of an _sf_map; 0: no map */
};

/* The quantization that makes operand `role` of the problem: A, B, or D and T
   where copies of the result are wanted, whose `copies` names the one copy.
   `split` and fields other than sizes are not set. Returns its scaling, or NULL
   where the recipe keeps the operand as it is: then only `of` is set. */
const struct qn_scaling *qn_scale_source(const struct qn_problem *problem,
                                         const struct qn_recipe *recipe,
                                         int role, struct qn_quantization *q);

/* Is each value of the operand, which has such scales, multiplied by its own
   before it is summed? Else scales are factors of sums. */
int qn_scale_of_values(const struct qn_problem *problem,
                       const struct qn_recipe *recipe, int role,
                       const struct qn_scaling *scaling);

/* Is A or B of the problem scaled? */
int qn_scale_any(const struct qn_problem *problem,
                 const struct qn_recipe *recipe);

/* Does a tensor of the recipe have scales of blocks? The recipe may be NULL. */
int qn_scale_blocks(const struct qn_recipe *recipe);

/* The layout of the operand's scales; nothing for an operand without scales. */
void qn_scale_of(const struct qn_problem *problem,
                 const struct qn_recipe *recipe, int role,
                 struct qn_scales *scales);

/* Columns of the operand in memory, and elements from one row to the next:
   where it is a copy, rows are padded and groups aligned. */
void qn_scale_columns(const struct qn_problem *problem,
                      const struct qn_recipe *recipe, int role,
                      int64_t *columns, int64_t *pitch);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** exact.h: grouped products of small whole values, in every form.
**
** All sums are exact in any order, and all types hold them, so that D is
** compared as bytes: it is computed here from the definition, rounded once.
** Bytes between rows and outside every group must stay as they were.
*/
#pragma once

#include "internal.h"

enum { GROUPS = 5, TOTAL = 17 };
enum { EXACT_A, EXACT_B, EXACT_C, EXACT_D, EXACT_ROLES };

extern const int64_t exact_sizes[GROUPS]; /* two of TOTAL are left over */
extern const float exact_alphas[GROUPS], exact_betas[GROUPS];

/* A problem and how its operands are. */
struct form {
    const char *recipe;
    int a_major, b_major, ragged, d_type;
    int alpha, beta, scalars; /* as in problem and args */
    int wide;                 /* rows and matrices with gaps; 2: C's, too */
    int sizes;                /* enum quern_sizes */
    int scale;                /* every size times this; 0: 1 */
};

/* An operand by the axes of the canonical product. */
struct exact_operand {
    int axes[2]; /* row and column of the product's own matrix */
    int swapped; /* in memory, the second axis counts rows */
    int type;
    int64_t stride, group_stride;
    void *data; /* on the host */
};

/* Everything for one run of a form. */
struct run {
    const struct form *form;
    struct qn_problem p;
    int64_t sizes[GROUPS];
    struct qn_args args;
    struct exact_operand x[EXACT_ROLES];
};

/* The problem and its arguments, but for buffers and factors: where operands
   are on the host, `data` of so many bytes each, is noted. Codes of
   qn_problem_describe. */
int exact_prepare(struct quern_context *ctx, const struct form *f,
                  void *const data[EXACT_ROLES], size_t bytes, struct run *r);

/* Small whole values, another one everywhere. */
void exact_fill(const struct run *r, int role, size_t bytes, uint32_t seed);

/* The expected D, of so many bytes. */
void exact_refer(const struct run *r, void *want, size_t bytes);

/* SPDX-License-Identifier: Apache-2.0 */
/* tolerance.h: how far a product may be from the one in double. */
#pragma once

#include "internal.h"

/* How the products are summed. */
enum qn_sums {
    QN_SUMS_FULL,     /* in fp32 or exactly, of values that bf16 holds */
    QN_SUMS_PROMOTED, /* in an FP8 tensor core, every so often added in fp32 */
    QN_SUMS_NARROW    /* in an FP8 tensor core from the first to the last */
};

struct qn_tolerance {
    enum qn_sums sums;
    double sum;   /* of the sums, before they are rounded to D's type */
    double error; /* |d - reference| / |reference| at most */
    int rounding; /* 1: and at most 1.1 times that of the reference, rounded */
};

/* The bound for sums over `k` values. `recipe` is the plan's problem's, with
   the chosen `dequantize`. */
struct qn_tolerance qn_tolerance_of(const struct qn_problem *problem,
                                    const struct qn_recipe *recipe, int64_t k);

/* 1 - 2xy / (xx + yy) at most, y being normal values x after a trip through the
   format `type`, or a product of such values. */
double qn_tolerance_format(int type);

/* The power of two by which values up to `most` fill the format: the state of
   delayed scaling after earlier calls. */
float qn_tolerance_factor(int type, float most);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch.h: the entries of a plan's list.
**
** A plan is a list of launches: a product, and the casts, sums and small
** kernels that come before or after it. A run goes through the list once
** (run.c).
*/
#ifndef QUERN_PRODUCT_LAUNCH_H
#define QUERN_PRODUCT_LAUNCH_H

#include "choose/step.h"

struct qn_plan;
struct qn_quantize_plan;

/* The purpose of a launch. */
enum qn_work {
    QN_WORK_SIZES, /* move sizes from the host into the workspace */
    /* factors, padded sizes and flags for the next launch */
    QN_WORK_PREPARE,
    QN_WORK_RANGE,      /* check whether all values fit f16 */
    QN_WORK_REQUANTIZE, /* an operand to FP8 */
    QN_WORK_DEQUANTIZE, /* an operand to 16 bits */
    QN_WORK_QUANTIZE_A, /* from args.in */
    QN_WORK_SUM_A,      /* dbias of args.in, if no cast reads it */
    QN_WORK_DOWN,       /* lora_t, of A and one adapter */
    QN_WORK_PRODUCT,
    QN_WORK_UP,         /* lora_t and the other one, added to the sums */
    QN_WORK_EPILOGUE,   /* D, from the product's sums in the workspace */
    QN_WORK_SUM,        /* dbias or dprob, from the product's partial sums */
    QN_WORK_QUANTIZE_D, /* rowwise and columnwise */
    QN_WORK_OUTSIDE,    /* zeros in D or P outside the groups */
    QN_WORKS
};

/* The memory that a product reads A and B from. */
enum qn_operands {
    QN_OPERANDS_GIVEN,       /* the caller's */
    QN_OPERANDS_REQUANTIZED, /* FP8 in the workspace */
    QN_OPERANDS_DEQUANTIZED  /* bf16 in the workspace */
};

/* Skip a launch if this flag is not 0. */
enum qn_flag {
    QN_FLAG_CALLER, /* args.noop, NULL for none */
    QN_FLAG_MISFIT, /* set where some value does not fit the narrow type */
    QN_FLAG_FIT     /* set where all values do */
};

/* One entry of a plan: a kernel, or a cast of several. */
struct qn_launch {
    int work;     /* enum qn_work */
    int role;     /* of the operand that is quantized, dequantized or zeroed */
    int operands; /* enum qn_operands */
    int flag;     /* enum qn_flag */
    int index;    /* of a sum, among the steps of `cast` */
    struct qn_plan *product;       /* NULL: the plan itself */
    struct qn_quantize_plan *cast; /* NULL: a product or `step` */
    struct qn_step step;
};

/* At most: sizes, preparation, two operands to FP8 and two to values, a product
   of each, an epilogue, two sums, A, its sums, D, zeros in D and P, and two of
   adapters. */
enum { QN_LAUNCHES = 18 };

/* Is it a product, of the operands or of adapters? */
static inline int qn_launch_multiplies(const struct qn_launch *launch)
{
    return launch->work == QN_WORK_DOWN || launch->work == QN_WORK_PRODUCT ||
           launch->work == QN_WORK_UP;
}

/* The first launch with that purpose, or NULL. */
const struct qn_launch *qn_launch_find(const struct qn_plan *plan, int work);

/* Append a launch; its pointers become the plan's. */
struct qn_launch *qn_launch_add(struct qn_plan *plan, int work);

/*
** Append the launches of another plan, which becomes part of `plan`; products
** among them get `operands` and `flag`. The plan's facts about its kernel and
** about the caller's operands are then those of `other`.
*/
void qn_launch_absorb(struct qn_plan *plan, struct qn_plan *other, int operands,
                      int flag);

/* The launch before another one. */
enum qn_before { QN_BEFORE_NOTHING, QN_BEFORE_CAST, QN_BEFORE_PRODUCT };

/* Let the launches be dependent where that pays: casts and other small kernels
   after any launch, products without activation after them; none if a library
   multiplies. `before` comes before the first; returns what the last is to a
   next one. */
enum qn_before qn_launch_depend(struct qn_plan *plan, enum qn_before before);

#endif

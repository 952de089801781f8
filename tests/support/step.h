/* SPDX-License-Identifier: Apache-2.0 */
/*
** step.h: a training step of one layer, and its error by quantization.
**
**     y = x w^T      dx = dy w      dw = dy^T x         for each group
**
** Rowwise tensors of x, w and dy are multiplied for y and dx, the columnwise
** tensor of w for dx, those of dy and x for dw, as the recipe makes them:
** NVFP4's weights in blocks of 16 x 16, its dw of transformed tokens, dy
** rounded by chance.
**
** Shared by the host tests and the GPU suite.
*/
#pragma once

#include "support/case.h"
#include "oracle/memory.h"
#include "internal.h"

/* A copy's data, scales and those of the second level. */
enum { QT_STEP_DATA, QT_STEP_SF, QT_STEP_GLOBAL, QT_STEP_PARTS };

/* The copies of one of x, w and dy. */
struct qt_step_copies {
    struct qn_quantize_plan *plan;
    struct qn_quantize_args args;
    struct qn_memory numbers, workspace;
    struct qn_memory row[QT_STEP_PARTS], column[QT_STEP_PARTS];
};

/* y, dx or dw: enum quern_op. */
struct qt_step_product {
    struct qn_plan *plan;
    struct qn_args args;
    struct qn_memory d, workspace;
    float *result; /* of the last run, on the host */
};

/* The first fields are the caller's; all zero but them before qt_step_begin. */
struct qt_step {
    const struct qn_recipe *recipe;
    int backend; /* QUERN_BACKEND_HOST or QUERN_BACKEND_JIT */
    int nearest; /* dy is rounded as x is, not by chance */
    int groups;
    const int64_t *sizes;              /* [groups] tokens, summing up to */
    int64_t tokens, features, outputs; /* sides of x and w */
    float *x, *w, *dy;                 /* [tokens, features], [groups, outputs,
                                            features], [tokens, outputs] */
    struct qn_gpu *gpu;                /* NULL: the host */
    struct qn_memory lengths, random;  /* sizes; seed and offset */
    struct qt_step_copies copies[3];   /* enum quern_of */
    struct qt_step_product products[3];
};

/* Values (zeros), plans and buffers. Codes of the library. */
int qt_step_begin(struct qt_step *);
void qt_step_free(struct qt_step *);

/* Copies of x and w, then y. */
int qt_step_forward(struct qt_step *);

/* Copies of dy with that seed, then dx and dw. */
int qt_step_backward(struct qt_step *, uint64_t seed);

/* ----------------------------------------------------------- step_expect.c */
enum { QT_STEP_POINTS = 16 }; /* of the transform */

/* Zeros; ends the program where there is no room. */
void *qt_step_room(int64_t count, size_t size);

/* Point i of NVFP4's transform of v; with `back` of its inverse. */
double qt_step_transformed(const double v[QT_STEP_POINTS], int i, int back);

/* The first token of a group. */
int64_t qt_step_start(const struct qt_step *, int group);

/* y, dx or dw of the values that were not quantized, as the result is; the
   caller frees it. */
double *qt_step_reference(const struct qt_step *, int op);

/* The square of the error that one group's is expected to have. `placed`: of
   values that scales leave where they are among the format's. */
double qt_step_expected(const struct qt_step *, int op, int group, int placed);

/* ------------------------------------------------------------ step_check.c
** Each returns 1, or writes the error to `text`.
*/
enum { QT_STEP_TEXT = 400 };

/* The recipes that these take, NULL after the last: their scales leave no
   number of a block out of the format's range. */
const struct qn_recipe *qt_step_recipe(int i);

/* y, dx and dw are as near to float64's of the values that were not
   quantized as the format allows; with planted errors dw is not. */
int qt_step_gradients(int backend, const struct qn_recipe *, char *text);

/* The mean of dw over seeds comes nearer to float64's by their root; with
   nearest rounding, or always the same seed, it does not. Takes recipes that
   round dy by chance. */
int qt_step_seeds(int backend, const struct qn_recipe *, char *text);

/* w - lr dw lowers the loss as float64's dw does. */
int qt_step_descends(int backend, const struct qn_recipe *, char *text);

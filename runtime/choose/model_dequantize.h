/* SPDX-License-Identifier: Apache-2.0 */
/*
** model_dequantize.h: what kernels take that make bf16 of codes beside their
** products.
*/
#ifndef QUERN_CHOOSE_EXPAND_H
#define QUERN_CHOOSE_EXPAND_H

#include "internal.h"

/* Is it one of them? */
int qn_model_dequantizes(const struct qn_kernel *kernel);

/* Rows of A that a tile multiplies in the mean, of groups of this length. */
double qn_model_dequantize_rows(const struct qn_kernel *kernel, double length);

/* Is such a group one tile, however uneven they are? */
int qn_model_dequantize_whole(const struct qn_kernel *kernel, double length);

/* Cycles for k steps of a tile of so many rows, whose products alone take
   `math`. */
double qn_model_dequantize_cycles(const struct qn_kernel *kernel, double rows,
                                  double k, double math);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* mma.h: products of a warp. */
#pragma once

#include "machine.h"

struct px_build;
/* mma.sync with a .kind. */
int px_setup_scaled(struct px_build *b);
/* The fragment of B in two registers as k rows of 8 floats. */
void px_mma_columns(const struct px_warp *w, const int32_t *arg, float *to,
                    int type);
/* d = c + sum[16][8], by the order of the operands d, a, b, c. */
void px_mma_add(struct px_warp *w, const struct px_op *op, const float *sum);

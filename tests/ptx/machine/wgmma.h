/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma.h: products of a warpgroup, by its warps. */
#pragma once

#include "machine.h"

struct px_build;
int px_setup_wgmma(struct px_build *b);
/* Which type a name begins with; -1 for none. */
int px_mma_type(const char *name);
int px_mma_per_word(int type);
/* The fragment of A in four registers as 16 rows of floats. */
void px_mma_rows(const struct px_warp *w, const int32_t *arg, float *to,
                 int type);
/* sums.c: c[16][n] += a[16][k] * b[k][n], as an H100 does it in one step. */
void px_sums_add(float *c, const float *a, const float *b, int n, int k,
                 int a_type, int b_type);

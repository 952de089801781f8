/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuse_model.h: what it costs to quantize A in a product or before it.
*/
#ifndef QUERN_CHOOSE_FUSE_MODEL_H
#define QUERN_CHOOSE_FUSE_MODEL_H

#include "internal.h"

struct qn_choice;
struct qn_demand;
struct qn_figures;
struct qn_text;

/* Cycles that a tile of an inline kernel takes at least, and bytes that one
   copies of each value of A. */
double qn_fuse_tile(const struct qn_kernel *kernel, double k);
double qn_fuse_bytes(const struct qn_kernel *kernel);

/* What makes A, added to the cycles of a launch that are known; `rate` is the
   memory's bytes a cycle. Nothing for other problems. */
void qn_fuse_estimate(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, double rate,
                      struct qn_figures *figures);

/* Say where the best kernel's A is quantized, and at which estimated cost. */
void qn_fuse_why(const struct qn_problem *problem, const struct qn_choice *best,
                 struct qn_text *text);

#endif

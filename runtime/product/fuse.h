/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuse.h: the launches before a product that quantizes what it multiplies.
*/
#ifndef QUERN_PRODUCT_FUSE_H
#define QUERN_PRODUCT_FUSE_H

#include "internal.h"

struct qn_frame;
struct qn_launch;
struct qn_session;
struct qn_plan;

/* Append the launches that quantize A before the product, to a plan that has
   its kernel, or none yet where dequantized operands follow. */
int qn_fuse_plan(struct qn_plan *plan, const struct qn_session *session);

/* The rules of qn_run on what is quantized and made. QUERN_EINVAL. */
int qn_fuse_check(const struct qn_plan *plan, const struct qn_args *args);

/* Launch the cast of A, and the sums of A that no cast makes, in the plan's
   context. QUERN_ECUDA. */
int qn_fuse_quantize(struct qn_frame *frame, const struct qn_launch *launch);
int qn_fuse_sum(struct qn_frame *frame, const struct qn_launch *launch);

#endif

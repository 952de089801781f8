/* SPDX-License-Identifier: Apache-2.0 */
/*
** frame.h: one run of a plan's launches.
*/
#ifndef QUERN_PRODUCT_FRAME_H
#define QUERN_PRODUCT_FRAME_H

#include "choose/values.h"
#include "base/sizes_type.h"
#include "problem/dequantize_rules.h"

struct qn_plan;

/* The state that launches of one run share. */
struct qn_frame {
    const struct qn_plan *plan; /* fits the arguments */
    const struct qn_args *args;
    void *stream;
    /* the groups' sizes, as casts and small kernels read them */
    const void *lengths, *offsets;
    int sizes_type;
    struct qn_dequantize_space
        space;               /* of the workspace, for dequantized operands */
    struct qn_values values; /* of the last product */
};

/* An address in the workspace. */
static inline void *qn_frame_at(const struct qn_frame *frame, size_t at)
{
    return (char *)frame->args->workspace + at;
}

/* 8 or 4: bytes of one size. */
static inline int qn_frame_sizes(const struct qn_frame *frame)
{
    return qn_sizes_bytes(frame->sizes_type);
}

#endif

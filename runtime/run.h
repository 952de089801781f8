/*
** run.h: one run of a plan's launches.
**
** SPDX-License-Identifier: Apache-2.0
*/
#ifndef QUERN_RUN_H
#define QUERN_RUN_H

#include "ahead.h"

/* The state that launches of one run share. */
struct qn_frame {
    const struct quern_plan *plan; /* fits the arguments */
    const struct quern_args *args;
    void *stream;
    /* the groups' sizes, as casts and small kernels read them */
    const void *lengths, *offsets;
    int sizes_type;
    struct qn_ahead_space
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
    return frame->sizes_type == QUERN_I64 ? 8 : 4;
}

/*
** Run the plan with arguments that were checked, in the order of its list. The
** plan fits them. Neither allocates nor synchronizes. QUERN_ECUDA, QUERN_ECAPTURE.
*/
int qn_run_checked(const struct quern_plan *plan, const struct quern_args *args,
                   void *stream);

/*
** One launch of up to plan->parts products for the same matrices: the first as
** the plan says, the others added. All arguments have been checked against
** plans that differ from this one in beta and total alone.
*/
int qn_run_merged(const struct quern_plan *plan,
                  const struct quern_args *const *args, int count,
                  void *stream);

#endif

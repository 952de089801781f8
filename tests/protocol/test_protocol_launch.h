/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol_launch.h: all that a launch of a twin is given. */
#pragma once

#include "choose/tensormap.h"
#include "choose/values.h"
#include "problem/geometry.h"
#include "product/plan.h"
#include "test_protocol.h"

enum { TILE = 128 }; /* where groups begin in copies that are summed */

struct launch {
    struct twin_launch twin;
    struct qn_values values;
    const void *params[QN_PARAM_COUNT];
    struct twin_map maps[QN_MAPS];
    struct qn_geometry geometry[QN_ROLES];
    int64_t stride[QN_ROLES], group_stride[QN_ROLES];
    uint64_t apart[TWIN_ROLES][MAX_GROUPS];
    const void *c_apart[MAX_GROUPS];
    float alpha[MAX_GROUPS], beta[MAX_GROUPS];
    float bias[1 << 20], probability[1 << 14];
    char *scales[TWIN_D];
    float global[TWIN_D][MAX_GROUPS];
    int starts[MAX_GROUPS], lengths[MAX_GROUPS]; /* of groups in the copies */
    /* merged products */
    struct twin_part part[QUERN_MAX_MICROBATCHES];
    struct {
        struct twin_map a, b;
    } microbatch_maps[QUERN_MAX_MICROBATCHES];
    int part_sizes[QUERN_MAX_MICROBATCHES][MAX_GROUPS]; /* as the kernel gets
                                                           them */
    int part_starts[QUERN_MAX_MICROBATCHES][MAX_GROUPS];
    int part_lengths[QUERN_MAX_MICROBATCHES][MAX_GROUPS]; /* in the copies,
                                                             maybe */
    int part_k[QUERN_MAX_MICROBATCHES];
    int totals[MAX_GROUPS]; /* of each group */
    int liar;               /* the part whose sizes are */
    char *scales_end[TWIN_D];
};

extern struct launch launch;

/* The kernel's recipe, and the shape as a problem of it. */
const struct qn_recipe *launch_recipe(const struct qn_kernel *kernel);
struct qn_problem launch_problem(const struct qn_kernel *kernel,
                                    const struct shape *shape);

/* The sizes of all merged products; none if the kernel merges nothing. */
void launch_parts(const struct qn_kernel *kernel, const struct shape *shape);

/* The kernel's parameters of product i. */
void launch_part(const struct qn_kernel *kernel, const struct shape *shape,
                 int i);

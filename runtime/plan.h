/*
** plan.h: what quern_plan prepares for quern_run.
*/
#ifndef QUERN_PLAN_H
#define QUERN_PLAN_H

#include "module.h"
#include "tensormap.h"

/*
** A value for each parameter that kernels may declare, named as in QN_PARAMS.
** The plan holds all that is known before a run; the run completes a copy on
** its stack.                                       COUPLED: params -> run.c
*/
struct qn_values {
    struct cu_tensor_map a_map, b_map, d_map, d_ragged_map;
    const void *a, *b;
    void *d;
    long long a_stride, b_stride, d_stride;
    const void *first_dims, *offsets;
    int sizes_bytes, groups, m, n, k;
    unsigned int *error;
};

/* Where each value lies in struct qn_values, by enum qn_param. */
extern const size_t qn_run_values[QN_PARAM_COUNT];

/* A map that the kernel takes, for rows without gaps. */
struct qn_plan_map {
    const struct qn_map_param *param;
    struct qn_map map;
};

struct quern_plan {
    struct quern_context *ctx;
    struct quern_problem problem;
    struct quern_description need;
    const struct qn_kernel *kernel;
    int scaled;
    int backend;
    int workers;                    /* CTAs, or threads of the host */
    struct qn_geometry operands[3]; /* by enum qn_role */
    int mapped[3];                  /* the kernel has a map of it */
    struct qn_plan_map maps[QN_MAPS];
    int nmaps;
    struct qn_values values; /* complete but for addresses */
    qn_host_function *function;
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
    struct cu_function *kernel_function;
    struct cu_launch launch; /* all but the stream and the attributes */
    struct cu_attribute cluster;
};

#endif

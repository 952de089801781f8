/*
** plan.h: what quern_plan prepares for quern_run.
*/
#ifndef QUERN_PLAN_H
#define QUERN_PLAN_H

#include <string.h>

#include "launch.h"
#include "module.h"
#include "tensormap.h"

struct qn_cublaslt_engine;
struct quern_quantize_plan;

/* One of the products that a launch merges.
                                             COUPLED: parts */
struct qn_part {
    const void *a, *b, *first_dims, *offsets;
    const void *a_sf, *b_sf;
    const float *a_global, *b_global;
    long long a_stride, b_stride, a_sf_stride, b_sf_stride;
    int sizes_bytes, k;
};

struct qn_parts {
    struct qn_part part[QUERN_MAX_PARTS];
};

/* Sizes that the host knows, as many as a launch carries: parameters have 4096
   bytes in all.                       COUPLED: host sizes */
enum { QN_HOST_SIZES = 512 };
struct qn_host_sizes {
    int count, size[QN_HOST_SIZES];
};

struct qn_part_maps {
    struct {
        struct cu_tensor_map a, b;
    } part[QUERN_MAX_PARTS];
};

/*
** A value for each parameter that kernels may declare, named as in QN_PARAMS.
** The plan holds all that is known before a run; the run completes a copy on
** its stack.                                       COUPLED: params
*/
struct qn_values {
    struct cu_tensor_map a_map, a_ragged_map, b_map, b_ragged_map,
        b_pointer_map, d_map, d_ragged_map, d_pointer_map, p_map, p_ragged_map,
        a_tail_map, b_tail_map, a_sf_tail_map, b_sf_tail_map, a_sf_map,
        b_sf_map, in_map;
    const void *a, *b, *c;
    void *d;
    const void *const *a_pointers, *const *b_pointers, *const *c_pointers;
    void *const *d_pointers;
    long long a_stride, b_stride, c_stride, d_stride;
    long long a_group_stride, b_group_stride, c_group_stride, d_group_stride;
    const float *a_sf, *b_sf;
    long long a_sf_stride, b_sf_stride, a_sf_group_stride, b_sf_group_stride;
    const float *a_global, *b_global;
    const float *alpha, *beta, *bias;
    int scalar_step;
    const void *first_dims, *offsets;
    int sizes_bytes, ragged, a_major, b_major, groups, m, n, k, band;
    unsigned int *error;
    /* of casts */
    const void *in, *saved;
    const void *const *in_pointers;
    long long in_stride, in_group_stride, saved_stride;
    const float *probability;
    unsigned char *row, *column;
    long long row_stride, column_stride;
    void *row_sf, *column_sf;
    float *row_global, *column_global;
    unsigned int *row_amax, *column_amax;
    void *out;
    long long out_stride;
    float *out_sf;
    int align; /* of dequantize: 0: groups lie as their sizes say */
    float *dbias, *partials, *row_partials, *dprob;
    int dbias_add, input, form, activation, interleave;
    float limit, slope, shift;
    float *scale, *history;
    const unsigned long long *random;
    unsigned int *flags;
    const int *noop;
    const unsigned int *bases; /* of values as f16 */
    /* of merged launches; what follows is copied for those alone */
    int part_count;
    struct qn_parts parts;
    struct qn_part_maps part_maps;
    /* of the kernel that brings sizes, which has no others */
    struct qn_host_sizes host_sizes;
    int *device_sizes;
    /* and of what is expanded ahead */
    float *factors;
};

/* Values of all launches but merged ones. */
#define QN_PLAIN_BYTES offsetof(struct qn_values, part_count)

/* Those but for the maps, which come first: a kernel has a few at most, and a
   run copies them one by one. */
static inline void qn_plan_values(struct qn_values *values,
                                  const struct qn_values *known)
{
    const size_t maps = offsetof(struct qn_values, a);

    memcpy((char *)values + maps, (const char *)known + maps,
           QN_PLAIN_BYTES - maps);
}

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
    const struct qn_recipe *recipe;
    const struct qn_kernel *kernel;      /* NULL for the backend cublaslt */
    struct qn_cublaslt_engine *products; /* NULL for all others */
    int scaled;                          /* the recipe scales some tensor */
    int backend;
    int tuned;                             /* measured to be the fastest */
    int workers;                           /* CTAs, or threads of the host */
    struct qn_geometry operands[QN_ROLES]; /* by enum qn_role */
    int mapped[QN_ROLES];                  /* the kernel has a map of it */
    int takes_pointers[QN_ROLES];          /* and its matrices' addresses */
    int parts; /* products that a launch merges, at least 1 */
    struct qn_plan_map maps[QN_MAPS];
    int nmaps;
    struct qn_values values; /* complete but for addresses */
    qn_host_function *function;
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
    struct cu_function *kernel_function;
    struct cu_launch launch; /* all but the stream and the attributes */
    struct cu_attribute cluster;
    struct qn_launch launches[QN_LAUNCHES]; /* in the order of a run */
    int nlaunches;
    const struct qn_recipe *blocks; /* of requantized operands */
    size_t cast, numbers; /* in the workspace: of QN_WORK_QUANTIZE_D, and D
                             before it */
    size_t sums;          /* in fp32, that QN_WORK_EPILOGUE reads; 0: none */
};

/*
** The plan for these arguments: itself, or where they have fewer rows along the
** ragged axis a copy of it in `room` for so many. QUERN_EINVAL, QUERN_ECUDA.
*/
int qn_plan_fit(const struct quern_plan *plan, const struct quern_args *args,
                struct quern_plan *room, const struct quern_plan **fitted);

/*
** What a run of a kernel would launch it with: `values`, and in `params` the
** address of each that the kernel takes. The plan's context is current.
** Errors are those of quern_run.
*/
int qn_run_prepare(const struct quern_plan *plan, const struct quern_args *args,
                   struct qn_values *values, void **params);

/* quern_plan with a band that kernels must run with; 0: as usual. */
int qn_plan_make(struct quern_context *ctx, const struct quern_problem *problem,
                 const struct quern_plan_options *options, int band,
                 struct quern_plan **plan);

/* quern_plan of kernels that fuse the problem's epilogue with its product. */
int qn_plan_fused(struct quern_context *ctx,
                  const struct quern_problem *problem,
                  const struct quern_plan_options *options,
                  struct quern_plan **plan);

/* The same of one kernel that reads the operands, and whatever the problem says
   of launches before it. */
int qn_plan_alone(struct quern_context *ctx,
                  const struct quern_problem *problem,
                  const struct quern_plan_options *options,
                  struct quern_plan **plan);

#endif

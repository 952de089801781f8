/* SPDX-License-Identifier: Apache-2.0 */
/*
** values.h: a value for each parameter that kernels may declare.
*/
#ifndef QUERN_CHOOSE_VALUES_H
#define QUERN_CHOOSE_VALUES_H

#include "device/cuda_api.h"
#include "internal.h"

#include <string.h>

/* One of the products that a launch merges.
                                             COUPLED: microbatches */
struct qn_microbatch {
    const void *a, *b, *first_dims, *offsets;
    const void *a_sf, *b_sf;
    const float *a_global, *b_global;
    long long a_stride, b_stride, a_sf_stride, b_sf_stride;
    int sizes_bytes, k;
};

struct qn_microbatches {
    struct qn_microbatch part[QUERN_MAX_MICROBATCHES];
};

/* Sizes that the host knows, as many as a launch carries: parameters have 4096
   bytes in all.                       COUPLED: host sizes */
enum { QN_HOST_SIZES = 512 };
struct qn_host_sizes {
    int count, size[QN_HOST_SIZES];
};

struct qn_microbatch_maps {
    struct {
        struct cu_tensor_map a, b;
    } part[QUERN_MAX_MICROBATCHES];
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
        b_sf_map, in_map, extra_a_map, extra_b_map;
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
    int sizes_bytes, ragged, a_major, b_major, groups, m, n, k, band, d_bytes;
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
    int align; /* of dequantize: 0: groups are as their sizes say */
    float *dbias, *partials, *row_partials, *dprob;
    int dbias_add, input, form, activation, interleave;
    float limit, slope, shift;
    float *scale, *history;
    const unsigned long long *random;
    unsigned int *flags;
    const int *noop;
    const unsigned int *bases; /* of values as f16 */
    /* of routes */
    const void *index;
    int topk, tokens, experts, first_expert;
    int *lengths, *starts, *gather, *inverse, *token_count;
    unsigned int *counters;
    const void *rows;
    long long rows_stride;
    const uint64_t *addresses;
    const int *scatter;
    float *pair_numbers, *row_numbers;
    /* of products with adapters */
    const void *extra_a, *extra_b;
    int extra_k;
    /* of merged launches; the fields below are copied only for those */
    int microbatch_count;
    struct qn_microbatches microbatches;
    struct qn_microbatch_maps microbatch_maps;
    /* of the kernel that loads sizes, which has no others */
    struct qn_host_sizes host_sizes;
    int *device_sizes;
    /* and of operands dequantized in a pass */
    float *factors;
};

/* Values of all launches but merged ones. */
#define QN_PLAIN_BYTES offsetof(struct qn_values, microbatch_count)

/* Those but for the maps, which come first: a kernel has a few at most, and a
   run copies them one by one. */
static inline void qn_value_copy(struct qn_values *values,
                                 const struct qn_values *known)
{
    const size_t maps = offsetof(struct qn_values, a);

    memcpy((char *)values + maps, (const char *)known + maps,
           QN_PLAIN_BYTES - maps);
}

/* The offset of each value in struct qn_values, by enum qn_param. */
extern const size_t qn_value_offsets[QN_PARAM_COUNT];

/* The address of each of the kernel's parameters. */
void qn_value_list(const struct qn_kernel *kernel, struct qn_values *values,
                   void *params[QN_PARAM_COUNT]);

#endif

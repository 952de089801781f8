/* SPDX-License-Identifier: Apache-2.0 */
/*
** host.h: what the host tests share: one context and a run between canaries.
*/
#ifndef QT_HOST_H
#define QT_HOST_H

#include "support/case.h"

extern struct quern_context *host_ctx;

enum { HOST_GUARD = 1 << 16 }; /* bytes on both sides of D */

/* D between two guards, and all else that a run takes in addition to its
   data. */
struct host_output {
    unsigned char *memory;
    void *d;
    size_t d_bytes;
    void *workspace;
    size_t workspace_bytes;
    void *pointers[QT_ROLES][QUERN_MAX_GROUPS];
};

/*
** A test goes on in a context that has the folder's specs, too, until it closes
** them; it is skipped where no C compiler could make their kernels.
*/
struct host_specs {
    struct quern_context *before;
};
void host_specs_open(struct host_specs *, const char *folder);
void host_specs_close(struct host_specs *);

/* A plan of the host backend; fails the test if it cannot be made. */
struct quern_plan *host_plan(const struct qt_case *c, int threads,
                             struct quern_args *args);

/* D as it is before a run, poison around it; the first call allocates. */
void host_output_reset(struct host_output *, const struct qt_data *data);
void host_output_free(struct host_output *);

/* Fails the test if a guard was written. */
void host_output_guarded(const struct host_output *, const char *what);

/* quern_run and quern_check on `data`; returns quern_check's code. */
int host_run(const struct quern_plan *plan, struct quern_args *args,
             const struct qt_case *c, const struct qt_data *data,
             struct host_output *out);

/* All of it: plan, run, check QUERN_OK and the guards. The caller frees. */
void host_multiply(const struct qt_case *c, const struct qt_data *data,
                   int threads, struct host_output *out);

/* The case with invalid sizes: reported for the first wrong group, and
   nothing written outside of the buffers. */
void host_lie(struct qt_case *c, const struct qt_bad_size *bad_size,
              int sizes_type);

/* The same with data of its own, compared with float64. */
void host_case_right(const struct qt_case *c);

/* The rowwise tensor that a cast makes of fp32, with the activation, rows and
   groups of a product whose result it would be: `of` an x or a dy. `given` has
   all addresses but the workspace's. Returns the copy's stride, 0 if packed. */
int64_t host_cast(const struct quern_problem *problem, int of, int64_t features,
                  const struct quern_quantize_args *given);

/* The tests, each in the file of its name. */
void test_every_variant(void **state);
void test_torture_sizes(void **state);
void test_odd_shapes(void **state);
void test_float64_tolerance(void **state);
void test_ascending_k(void **state);
void test_threads_agree(void **state);
void test_zero_beta_leaves_c(void **state);
void test_empty_groups(void **state);
void test_far_rows(void **state);
void test_rounding_to_bf16(void **state);
void test_rounding_to_f16(void **state);
void test_rounding_nan_and_inf(void **state);
void test_lying_sizes(void **state);
void test_check_clears(void **state);
void test_shared_casts(void **state);
void test_scaled_recipes(void **state);
void test_scaled_long(void **state);
void test_scaled_empty(void **state);
void test_scaled_specs(void **state);
void test_scaled_threads(void **state);
void test_scaled_nan(void **state);
void test_scaled_pairs(void **state);
void test_scaled_bad_sizes(void **state);
void test_quantize_arguments(void **state);
void test_quantize_texts(void **state);
void test_quantize_lying_sizes(void **state);
void test_quantize_adds_dbias(void **state);
void test_quantize_threads(void **state);
void test_quantize_one_copy(void **state);
void test_quantize_bias(void **state);
void test_quantize_adds_bias(void **state);
void test_queue_schedules(void **state);
void test_noop_flag(void **state);
void test_queue_own_factors(void **state);
void test_queue_refuses_dbias(void **state);
void test_queue_order_of_sums(void **state);
void test_queue_merges_alike(void **state);
void test_fidelity(void **state);
void test_fidelity_of_padding(void **state);
void test_queue_keeps_types(void **state);
void test_quantize_pointers(void **state);
void test_activations(void **state);
void test_activation_order(void **state);
void test_fuse(void **state);
void test_activation_ends(void **state);

/* gradient.c */
void test_gradients(void **state);
void test_gradient_refusals(void **state);
void test_gradient_arguments(void **state);

/* copies.c */
void test_result_copies(void **state);
void test_result_of_gradients(void **state);
void test_result_rows(void **state);
void test_result_refusals(void **state);
void test_mlp_right(void **state);
void test_mlp_sizes(void **state);
void test_mlp_phases(void **state);
void test_mlp_recompute(void **state);
void test_mlp_queue(void **state);
void test_mlp_limits(void **state);
void test_mlp_arguments(void **state);
void test_mlp_texts(void **state);
void test_mlp_bad_sizes(void **state);

/* scale_ends.c */
void test_scale_ends(void **state);
void test_scale_ends_mixed(void **state);

/* stack.c */
void test_small_stack_of_thread(void **state);

/* steps.c */
void test_step_gradients(void **state);
void test_step_seeds(void **state);
void test_step_descends(void **state);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_host.c: the host backend through the public header.
**
** It is the oracle for the GPU, so it is held to float64 itself:
**
**   err = |d - ref| / |ref|      16-bit operands, NUMERICS
**     fp32 out    err <= max(1e-5, 2e-9 k)
**     bf16 out    err <= 4e-3 and <= 1.1 x that of the reference rounded once
**     fp16 out    err <= 6e-4 and the same
**   integer operands             right to the bit
**   fp32 sums                    the bits of a plain ascending loop
**                                                  COUPLED: tolerances
**
** Run: build/bin/test_host [name, may have * and ?]
*/
#include "host.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static int open_library(void **state)
{
    struct quern_open_options options = {.cache = ""};
    int code = quern_open(&options, &host_ctx);

    (void)state;
    qt_context = host_ctx;
    return code;
}

static int close_library(void **state)
{
    (void)state;
    quern_close(host_ctx);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_variant),
        cmocka_unit_test(test_torture_sizes),
        cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_float64_tolerance),
        cmocka_unit_test(test_ascending_k),
        cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_zero_beta_leaves_c),
        cmocka_unit_test(test_empty_groups),
        cmocka_unit_test(test_far_rows),
        cmocka_unit_test(test_rounding_to_bf16),
        cmocka_unit_test(test_rounding_to_f16),
        cmocka_unit_test(test_rounding_nan_and_inf),
        cmocka_unit_test(test_lying_sizes),
        cmocka_unit_test(test_check_clears),
        cmocka_unit_test(test_shared_casts),
        cmocka_unit_test(test_scaled_recipes),
        cmocka_unit_test(test_scaled_long),
        cmocka_unit_test(test_scaled_empty),
        cmocka_unit_test(test_scaled_specs),
        cmocka_unit_test(test_scaled_threads),
        cmocka_unit_test(test_scaled_nan),
        cmocka_unit_test(test_scaled_pairs),
        cmocka_unit_test(test_scaled_bad_sizes),
        cmocka_unit_test(test_quantize_arguments),
        cmocka_unit_test(test_quantize_texts),
        cmocka_unit_test(test_quantize_lying_sizes),
        cmocka_unit_test(test_quantize_adds_dbias),
        cmocka_unit_test(test_quantize_threads),
        cmocka_unit_test(test_quantize_one_copy),
        cmocka_unit_test(test_quantize_bias),
        cmocka_unit_test(test_quantize_adds_bias),
        cmocka_unit_test(test_queue_schedules),
        cmocka_unit_test(test_noop_flag),
        cmocka_unit_test(test_queue_own_factors),
        cmocka_unit_test(test_queue_refuses_dbias),
        cmocka_unit_test(test_queue_order_of_sums),
        cmocka_unit_test(test_queue_merges_alike),
        cmocka_unit_test(test_fidelity),
        cmocka_unit_test(test_fidelity_of_padding),
        cmocka_unit_test(test_queue_keeps_types),
        cmocka_unit_test(test_quantize_pointers),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activation_order),
        cmocka_unit_test(test_activation_ends),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_gradient_refusals),
        cmocka_unit_test(test_gradient_arguments),
        cmocka_unit_test(test_result_copies),
        cmocka_unit_test(test_result_of_gradients),
        cmocka_unit_test(test_result_rows),
        cmocka_unit_test(test_result_refusals),
        cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_mlp_right),
        cmocka_unit_test(test_mlp_sizes),
        cmocka_unit_test(test_mlp_phases),
        cmocka_unit_test(test_mlp_recompute),
        cmocka_unit_test(test_mlp_queue),
        cmocka_unit_test(test_mlp_limits),
        cmocka_unit_test(test_mlp_arguments),
        cmocka_unit_test(test_mlp_texts),
        cmocka_unit_test(test_mlp_bad_sizes),
        cmocka_unit_test(test_scale_ends),
        cmocka_unit_test(test_scale_ends_mixed),
        cmocka_unit_test(test_small_stack_of_thread),
        cmocka_unit_test(test_step_gradients),
        cmocka_unit_test(test_step_seeds),
        cmocka_unit_test(test_step_descends),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("host", tests, open_library,
                                       close_library);
}

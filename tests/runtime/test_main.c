/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_main.c: the tests of libquern, which need neither a GPU nor a compiler:
** fakes replace libcuda, libnvrtc, libcublasLt and libquern_gen.
*/
#include "test.h"

/* An argument is a pattern of the names of tests to run: '*thread*' is what a
   thread sanitizer should see. */
int main(int argc, char **argv)
{
    int failed = 0;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    failed += test_problem_group();
    failed += test_infer_group();
    failed += test_expr_group();
    failed += test_plan_group();
    failed += test_run_group();
    failed += test_args_group();
    failed += test_scaled_group();
    failed += test_activate_group();
    failed += test_result_group();
    failed += test_rows_group();
    failed += test_epilogue_group();
    failed += test_gradient_group();
    failed += test_fuse_group();
    failed += test_fuse_sums_group();
    failed += test_mlp_group();
    failed += test_mlp_bias_group();
    failed += test_dequantize_group();
    failed += test_requantize_group();
    failed += test_range_group();
    failed += test_check_group();
    failed += test_failure_group();
    failed += test_process_group();
    failed += test_hostile_group();
    failed += test_cache_group();
    failed += test_shared_group();
    failed += test_calls_group();
    failed += test_crowd_group();
    failed += test_tamper_group();
    failed += test_host_group();
    failed += test_nvrtc_group();
    failed += test_cublaslt_group();
    failed += test_cublaslt_use_group();
    failed += test_queue_group();
    failed += test_host_sizes_group();
    failed += test_tune_group();
    failed += test_tune_file_group();
    failed += test_tune_strategies_group();
    failed += test_cublaslt_scaled_group();
    failed += test_cublaslt_lanes_group();
    failed += test_cublaslt_groups_group();
    return failed != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_numbers.c: casts, scales, random bytes, functions and activations.
**
** Run: build/bin/test_numbers      from the repository's root
**   QUERN_FLOAT_STEP=1   exp, sigmoid and tanh of every float (minutes)
*/
#include "numbers.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_e8m0_multiplier),
        cmocka_unit_test(test_scale_rules),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_hadamard),
        cmocka_unit_test(test_fma),
        cmocka_unit_test(test_math),
        cmocka_unit_test(test_math_ends),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activation_ends),
        cmocka_unit_test(test_dequantize_every_pair),
        cmocka_unit_test(test_dequantize_f16),
        cmocka_unit_test(test_dequantize_sampled),
        cmocka_unit_test(test_dequantize_encode_again),
        cmocka_unit_test(test_dequantize_again_ends),
        cmocka_unit_test(test_dequantize_beyond),
        cmocka_unit_test(test_dequantize_apart),
        cmocka_unit_test(test_device_compiles),
        cmocka_unit_test(test_device_same_bits),
    };

    return cmocka_run_group_tests_name("numbers", tests, pieces_load,
                                       pieces_free);
}

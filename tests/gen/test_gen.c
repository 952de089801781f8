/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_gen.c: the generator, from specs to files. Needs no compiler but for
** the test of a rule's C, which skips without one.
*/
#include "test_gen.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagnostics),
        cmocka_unit_test(test_every_message_has_a_case),
        cmocka_unit_test(test_sandbox),
        cmocka_unit_test(test_stops_at_twenty),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_embedded_texts),
        cmocka_unit_test(test_same_bytes_again),
        cmocka_unit_test(test_order_of_folders),
        cmocka_unit_test(test_rule_in_c),
        cmocka_unit_test(test_rule_constants),
        cmocka_unit_test(test_no_memory_from_then_on),
        cmocka_unit_test(test_no_memory_once),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_memory_for_points),
        cmocka_unit_test(test_emit_writes_what_changed),
        cmocka_unit_test(test_emit_all_or_nothing),
        cmocka_unit_test(test_emit_selects),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_bad_folders),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_field_rows),
        cmocka_unit_test(test_registry_text),
        cmocka_unit_test(test_many_recipes),
        cmocka_unit_test(test_refusals_last),
        cmocka_unit_test(test_late_errors),
        cmocka_unit_test(test_lazy_kernels),
        cmocka_unit_test(test_lazy_errors),
        cmocka_unit_test(test_early_errors),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_words_of_scales),
        cmocka_unit_test(test_powers_in_f16),
        cmocka_unit_test(test_squares_of_groups),
    };

    return cmocka_run_group_tests_name("gen", tests, NULL, NULL);
}

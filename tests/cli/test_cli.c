/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_cli.c: the program `quern` as a user meets it, and the parts of it that
** others build on: group sizes and random data.
**
** Run: build/bin/test_cli [TEST]      runs build/bin/quern next to it; TEST is
**                                     one test's name, or a pattern
*/
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "test_cli.h"

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even_differs_by_one),
        cmocka_unit_test(test_splits_add_up),
        cmocka_unit_test(test_zipf_descends),
        cmocka_unit_test(test_lists_and_files),
        cmocka_unit_test(test_bad_splits_say_why),
        cmocka_unit_test(test_bad_files_say_where),
        cmocka_unit_test(test_files_are_text),
        cmocka_unit_test(test_file_sums),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_routes_of_other_programs),
        cmocka_unit_test(test_bad_routes_say_where),
        cmocka_unit_test(test_random_is_the_same),
        cmocka_unit_test(test_random_is_nearly_normal),
        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_help_has_every_field),
        cmocka_unit_test(test_json_parses),
        cmocka_unit_test(test_overhead),
        cmocka_unit_test(test_emit_is_all_or_nothing),
        cmocka_unit_test(test_code),
        cmocka_unit_test(test_code_without_gpu),
        cmocka_unit_test(test_load_is_what_nvml_says),
        cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_bench_says_how_hard),
        cmocka_unit_test(test_log_is_a_line_each),
        cmocka_unit_test(test_names_are_symbols),
        cmocka_unit_test(test_cache_is_verified),
        cmocka_unit_test(test_tune_keeps_a_winner),
        cmocka_unit_test(test_demo),
        cmocka_unit_test(test_linked_kernels),
        cmocka_unit_test(test_installed),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_output_fails),
        cmocka_unit_test(test_output_too_large),
        cmocka_unit_test(test_cache_where),
        cmocka_unit_test(test_json_for_others),
        cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_python_has_our_structures),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

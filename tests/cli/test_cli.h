/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_cli.h: the tests, each in the file that its name's subject has.
*/
#ifndef QT_CLI_H
#define QT_CLI_H

/* sizes_test.c */
void test_even_differs_by_one(void **state);
void test_splits_add_up(void **state);
void test_zipf_descends(void **state);
void test_lists_and_files(void **state);
void test_bad_splits_say_why(void **state);
void test_bad_files_say_where(void **state);
void test_files_are_text(void **state);
void test_file_sums(void **state);
void test_routes(void **state);
void test_routes_of_other_programs(void **state);
void test_bad_routes_say_where(void **state);

/* random_test.c */
void test_random_is_the_same(void **state);
void test_random_is_nearly_normal(void **state);
void test_f16_round_trip(void **state);

/* program_test.c */
void test_commands(void **state);
void test_help_has_every_field(void **state);
void test_json_parses(void **state);
void test_overhead(void **state);
void test_emit_is_all_or_nothing(void **state);
void test_linked_kernels(void **state);
void test_code(void **state);
void test_code_without_gpu(void **state);

/* hostile_test.c */
void test_wrong_arguments(void **state);
void test_output_fails(void **state);
void test_output_too_large(void **state);
void test_cache_where(void **state);
void test_json_for_others(void **state);
void test_interrupts(void **state);

/* mirror_test.c */
void test_python_has_our_structures(void **state);

/* load_test.c */
void test_load_is_what_nvml_says(void **state);
void test_peaks(void **state);

/* observe_test.c */
void test_bench_says_how_hard(void **state);
void test_log_is_a_line_each(void **state);
void test_names_are_symbols(void **state);
void test_cache_is_verified(void **state);
void test_tune_keeps_a_winner(void **state);
void test_demo(void **state);

/* install_test.c */
void test_installed(void **state);

/* ------------------------------------------------------------------ shell.c */

/* The folder that this program is in. */
const char *test_own_folder(void);

/* The exit status of a shell's command; what it printed is in test_output. */
int test_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char test_output[1 << 22];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_gen.h: what the generator's tests share.
**
** They run in the repository's root and read tests/gen/cases (specs beside the
** diagnostics that they must give) and tests/gen/golden (folders of specs and
** templates beside the files that they must give).
*/
#ifndef QT_GEN_H
#define QT_GEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "embedded.h"
#include "gen.h"

enum { MAX_FILES = 64 };

/* Files in memory, sorted by nothing; freed by files_free. */
struct files {
    struct qg_file at[MAX_FILES];
    int count;
};

/* files.c */
char *file_read(const char *path, size_t *length); /* NULL if there is none */
void file_write(const char *path, const char *text);
void files_put(struct files *, const char *path, const char *text,
               size_t length); /* copied; replaces a file of that path */
void files_read(struct files *, const char *folder, const char *prefix);
void files_free(struct files *);
char *folder_make(char *path); /* mkdtemp */
void folder_remove(const char *path);
struct qg *open_files(const struct files *); /* whatever comes of it */

/* cases.c */
struct test_case {
    char name[128]; /* the message's name, then words */
    struct files files;
    char *expect;
};
struct test_cases {
    struct test_case *at;
    int count;
};
void cases_read(struct test_cases *, const char *path);
void cases_free(struct test_cases *);

/* the tests, each in the file of its subject: NAME_test.c */
void test_diagnostics(void **state);
void test_every_message_has_a_case(void **state);
void test_sandbox(void **state);
void test_stops_at_twenty(void **state);
void test_golden(void **state);
void test_embedded_texts(void **state);
void test_same_bytes_again(void **state);
void test_order_of_folders(void **state);
void test_rule_in_c(void **state);
void test_rule_constants(void **state);
void test_no_memory_from_then_on(void **state);
void test_no_memory_once(void **state);
void test_memory_is_bounded(void **state);
void test_memory_for_points(void **state);
void test_emit_writes_what_changed(void **state);
void test_emit_all_or_nothing(void **state);
void test_emit_selects(void **state);
void test_folders(void **state);
void test_bad_folders(void **state);
void test_calls(void **state);
void test_field_rows(void **state);
void test_registry_text(void **state);
void test_many_recipes(void **state);
void test_refusals_last(void **state);
void test_late_errors(void **state);
void test_lazy_kernels(void **state);
void test_lazy_errors(void **state);
void test_early_errors(void **state);
void test_hash(void **state);
void test_words_of_scales(void **state);
void test_powers_in_f16(void **state);
void test_squares_of_groups(void **state);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* determinism_test.c: the same specs give the same bytes. */
#include "test_gen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Paths and texts, in the order of paths. */
static void check_equal(const struct files *a, const struct files *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_string_equal(a->at[i].path, b->at[i].path);
        assert_string_equal(a->at[i].text, b->at[i].text);
    }
}

/* Everything that qg_emit writes; closes the generator. */
static void emit(struct qg *q, struct files *made)
{
    char out[64];

    made->count = 0;
    assert_string_equal(qg_diagnostics(q), "");
    folder_make(out);
    assert_int_equal(qg_emit(q, out, NULL, NULL), 0);
    files_read(made, out, "");
    folder_remove(out);
    qg_close(q);
}

/* Forward and backward: the order in which files come decides nothing. */
TEST(same_bytes_again)
{
    struct files files = {.count = 0}, back = {.count = 0}, one, two;

    files_read(&files, "tests/gen/golden/toy/specs", "specs");
    files_read(&files, "tests/gen/golden/toy/templates", "templates");
    for (int i = files.count; i-- > 0;)
        files_put(&back, files.at[i].path, files.at[i].text,
                  files.at[i].length);
    emit(open_files(&files), &one);
    emit(open_files(&back), &two);
    check_equal(&one, &two);
    assert_true(one.count > 5);
    files_free(&one);
    files_free(&two);
    files_free(&files);
    files_free(&back);
}

/* A folder of the user's with one recipe, for which the toy has kernels. */
static void make_specs(const char *dir, const char *recipe)
{
    char path[256], text[512];

    snprintf(path, sizeof path, "%s/recipes", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/recipes/%s.lua", dir, recipe);
    snprintf(text, sizeof text,
             "-- %s\nrecipe \"%s\" {\n"
             "  element = { x = bf16, w = bf16, dy = bf16 }, d = bf16,\n}\n",
             recipe, recipe);
    file_write(path, text);
}

/* The toy's specs, and both folders. */
static struct qg *open_folders(const char *first, const char *second)
{
    const char *const dirs[] = {first, second};
    struct files files = {.count = 0};
    struct qg_options options = {.dirs = dirs, .dirs_count = 2};
    struct qg *q;

    files_read(&files, "tests/gen/golden/toy/specs", "specs");
    files_read(&files, "tests/gen/golden/toy/templates", "templates");
    options.files = files.at;
    options.files_count = files.count;
    assert_int_equal(qg_open_with(&options, &q), 0);
    files_free(&files);
    return q;
}

/* The folders' own paths are in no file: this would differ by mkdtemp's. */
TEST(order_of_folders)
{
    char a[64], b[64];
    struct files one, two;

    make_specs(folder_make(a), "alpha");
    make_specs(folder_make(b), "beta");
    emit(open_folders(a, b), &one);
    emit(open_folders(b, a), &two);
    check_equal(&one, &two);
    for (int i = 0; i < one.count; i++) {
        assert_null(strstr(one.at[i].text, a));
        assert_null(strstr(one.at[i].text, b));
    }
    folder_remove(a);
    folder_remove(b);
    files_free(&one);
    files_free(&two);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_test.c: a source is made when it is asked for, and its errors show
   then. */
#include "test_gen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Kernels of x = 1, 2 and 3. */
static const char spec[] =
    "layout \"tn\" { a = \"k\", b = \"k\" }\n"
    "ragged \"m\" { a = \"m\", d = \"m\" }\n"
    "recipe \"r\" { element = { x = bf16, w = bf16, dy = bf16 }, d = bf16 }\n"
    "kernels \"k\" { op = \"fprop\", element = bf16, layout = \"tn\", "
    "ragged = \"m\", arch = \"host\",\n template = \"t.c\", "
    "params = { \"a\" }, scale = \"none\", axis \"x\" { 1, 2, 3 },\n"
    " derive \"tile\" (function (v) return { 1, 1, 1 } end) }\n";

static void put_files(struct files *files, const char *template)
{
    files->count = 0;
    files_put(files, "specs/kernels/k.lua", spec, strlen(spec));
    files_put(files, "templates/t.c", template, strlen(template));
}

/* The kernel whose x has this digit. */
static const struct qn_kernel *kernel_of(struct qg *q, int x)
{
    const struct quern_registry *registry = qg_registry(q);
    char end[8];

    snprintf(end, sizeof end, "x%d", x);
    for (int i = 0; i < registry->nkernels; i++)
        if (strstr(registry->kernels[i].name, end))
            return &registry->kernels[i];
    fail_msg("no kernel of x = %d", x);
    return NULL;
}

/* Fails only for the kernel of x = 2, each time in the same words. */
static void check_broken(struct qg *q, int failed)
{
    assert_int_equal(failed, 1);
    assert_string_equal(qg_diagnostics(q),
                        "templates/t.c:1: error: $(x == 2 or x) is a boolean; "
                        "it must be a whole number or a text\n"
                        "    int x = $(x == 2 or x); // $(name)\n"
                        "    while generating "
                        "quern_r_fprop_tn_m_bf16_host_x2, of "
                        "specs/kernels/k.lua:4\n");
}

/* An error that the start cannot see reaches the code that asks for it. */
TEST(late_errors)
{
    static const struct qg_link link = {"late", 0, NULL, NULL};
    static const struct qg_selection one = {.filter = "*x1*"};
    struct files files, made = {.count = 0};
    const char *text;
    size_t length;
    char out[64];
    struct qg *q;

    put_files(&files, "int x = $(x == 2 or x); // $(name)\n");
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    assert_int_equal(qg_registry(q)->nkernels, 3);
    assert_null(kernel_of(q, 3)->key);
    assert_int_equal(qg_source(q, kernel_of(q, 3)->name, &text, &length), 0);
    assert_non_null(strstr(text, kernel_of(q, 3)->key));
    for (int i = 0; i < 2; i++)
        check_broken(q, qg_source(q, kernel_of(q, 2)->name, &text, &length));
    assert_null(kernel_of(q, 2)->key);
    check_broken(q, qg_registry_text(q, NULL, &link, &text, &length));
    assert_int_equal(qg_registry_text(q, &one, &link, &text, &length), 0);
    folder_make(out);
    check_broken(q, qg_emit(q, out, NULL, NULL));
    files_read(&made, out, "");
    assert_int_equal(made.count, 0);
    assert_int_equal(qg_emit(q, out, &one, NULL), 0);
    folder_remove(out);
    qg_close(q);
    files_free(&files);
}

/* A recipe of the user's for which the build's kernels fail. */
TEST(early_errors)
{
    char dir[64], path[128];
    const char *const dirs[] = {dir};
    struct qg_options options = {.dirs = dirs, .dirs_count = 1};
    struct files files;
    struct qg *q;

    put_files(&files, "int x = $(recipe ~= \"user\" and 1); // $(name)\n");
    snprintf(path, sizeof path, "%s/recipes", folder_make(dir));
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/recipes/user.lua", dir);
    file_write(path, "recipe \"user\" { element = { x = bf16, w = bf16, "
                     "dy = bf16 }, d = bf16 }\n");
    options.files = files.at;
    options.files_count = files.count;
    assert_int_equal(qg_open_with(&options, &q), 1);
    assert_non_null(strstr(qg_diagnostics(q),
                           "templates/t.c:1: error: $(recipe ~= \"user\" and "
                           "1) is a boolean"));
    assert_int_equal(qg_registry(q)->nkernels, 0);
    qg_close(q);
    folder_remove(dir);
    files_free(&files);
}

/* A lazy generator writes the same as the other one. */
static void check_same(struct qg *lazy, struct qg *q, const char *name)
{
    const char *text, *other;
    size_t length, other_length;

    assert_null(qg_source_kernel(lazy, name)->key);
    assert_int_equal(qg_source(lazy, name, &text, &length), 0);
    assert_int_equal(qg_source(q, name, &other, &other_length), 0);
    assert_string_equal(text, other);
    assert_int_equal(length, other_length);
    assert_string_equal(qg_source_kernel(lazy, name)->key,
                        qg_source_kernel(q, name)->key);
}

/* A kernel is made when it is asked for by name, of the tree's specs, too. */
TEST(lazy_kernels)
{
    const struct quern_registry *registry;
    const char *text;
    size_t length;
    struct qg *q, *lazy;

    assert_int_equal(qg_open(NULL, 0, &q), 0);
    assert_int_equal(qg_open_lazily(&lazy), 0);
    registry = qg_registry(q);
    assert_int_equal(qg_registry(lazy)->nkernels, 0);
    for (int i = 0; i < registry->nkernels; i += 97)
        check_same(lazy, q, registry->kernels[i].name);
    assert_null(qg_source_kernel(lazy, registry->rejected[0].name));
    assert_null(qg_source_kernel(lazy, "quern_bf16"));
    assert_string_equal(qg_diagnostics(lazy), "");
    assert_int_equal(qg_source(lazy, "quern_bf16", &text, &length), 1);
    assert_non_null(strstr(qg_diagnostics(lazy), "quern_bf16"));
    check_same(lazy, q, registry->kernels[1].name);
    qg_close(lazy);
    qg_close(q);
}

/* The same error as of all kernels, and again when it is asked for again. */
TEST(lazy_errors)
{
    struct qg_options options = {.lazy = 1};
    struct files files;
    const char *text;
    size_t length;
    struct qg *q;

    put_files(&files, "int x = $(x == 2 or x); // $(name)\n");
    options.files = files.at;
    options.files_count = files.count;
    assert_int_equal(qg_open_with(&options, &q), 0);
    for (int i = 0; i < 2; i++)
        check_broken(
            q, qg_source(q, "quern_r_fprop_tn_m_bf16_host_x2", &text, &length));
    assert_int_equal(
        qg_source(q, "quern_r_fprop_tn_m_bf16_host_x3", &text, &length), 0);
    qg_close(q);
    files_free(&files);
}

/* The registry's hash for these files. */
static void hash_of(const struct files *files, char hash[65])
{
    struct qg *q = open_files(files);

    assert_string_equal(qg_diagnostics(q), "");
    snprintf(hash, 65, "%s", qg_registry(q)->hash);
    assert_int_equal(strlen(hash), 64);
    qg_close(q);
}

/* It stands for all that is read, be it one letter of a template. */
TEST(hash)
{
    static const char one_more[] =
        "recipe \"q\" { element = { x = bf16, w = bf16, dy = bf16 }, "
        "d = bf16 }\n";
    struct files files;
    char first[65], again[65];

    put_files(&files, "int x = $(x); // $(name)\n");
    hash_of(&files, first);
    hash_of(&files, again);
    assert_string_equal(first, again);
    files_put(&files, "templates/t.c", "int y = $(x); // $(name)\n", 25);
    hash_of(&files, again);
    assert_string_not_equal(first, again);
    files_put(&files, "templates/t.c", "int x = $(x); // $(name)\n", 25);
    hash_of(&files, again);
    assert_string_equal(first, again);
    files_put(&files, "specs/recipes/q.lua", one_more, strlen(one_more));
    hash_of(&files, again);
    assert_string_not_equal(first, again);
    files_free(&files);
}

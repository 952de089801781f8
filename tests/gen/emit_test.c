/* SPDX-License-Identifier: Apache-2.0 */
/* emit_test.c: files in a folder, and specs from folders. */
#include "test_gen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct qg *open_toy(void)
{
    struct files files = {.count = 0};
    struct qg *q;

    files_read(&files, "tests/gen/golden/toy/specs", "specs");
    files_read(&files, "tests/gen/golden/toy/templates", "templates");
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    files_free(&files);
    return q;
}

/* When the file was last written. */
static struct timespec time_of(const char *folder, const char *name)
{
    char path[512];
    struct stat status;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(stat(path, &status), 0);
    return status.st_mtim;
}

/* A time that no run of the test can give. */
static void set_old(const char *folder, const char *name)
{
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(utimensat(-1, path, times, 0), 0);
}

static void append(const char *folder, const char *name)
{
    char path[512];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    out = fopen(path, "a");
    assert_non_null(out);
    fputs("// changed\n", out);
    fclose(out);
}

/* One file is changed between two runs: only it is written again. */
TEST(emit_writes_what_changed)
{
    struct files one = {.count = 0}, two = {.count = 0};
    char out[64], deep[128];
    struct qg *q = open_toy();
    int count = 0;

    folder_make(out);
    snprintf(deep, sizeof deep, "%s/a/b", out);
    assert_int_equal(qg_emit(q, deep, NULL, &count), 0);
    assert_int_equal(count, qg_registry(q)->nkernels);
    files_read(&one, deep, "");
    assert_int_equal(one.count, count + 2);
    for (int i = 0; i < one.count; i++)
        set_old(deep, one.at[i].path);
    append(deep, one.at[1].path);
    assert_int_equal(qg_emit(q, deep, NULL, NULL), 0);
    files_read(&two, deep, "");
    assert_int_equal(one.count, two.count);
    for (int i = 0; i < one.count; i++) {
        assert_string_equal(one.at[i].text, two.at[i].text);
        assert_int_equal(time_of(deep, one.at[i].path).tv_sec == 1000, i != 1);
    }
    folder_remove(out);
    files_free(&one);
    files_free(&two);
    qg_close(q);
}

/* A folder is where the registry would go: no other file may appear. */
TEST(emit_all_or_nothing)
{
    struct files made = {.count = 0};
    char out[64], path[128];
    struct qg *q = open_toy();

    folder_make(out);
    snprintf(path, sizeof path, "%s/.registry.c.new", out);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(qg_emit(q, out, NULL, NULL), 2);
    assert_non_null(strstr(qg_diagnostics(q), "error: cannot write /tmp/"));
    assert_non_null(strstr(qg_diagnostics(q), "/registry.c: File exists"));
    files_read(&made, out, "");
    assert_int_equal(made.count, 0);
    assert_int_equal(qg_emit(q, "/proc/nothing/here", NULL, NULL), 2);
    assert_non_null(strstr(qg_diagnostics(q), "cannot write /proc/nothing"));
    folder_remove(out);
    qg_close(q);
}

/* How many kernels are written, -1 for none at all. */
static int count_of(struct qg *q, const char *arch, const char *filter,
                    int shipped)
{
    const struct qg_selection selection = {
        .arch = arch, .filter = filter, .shipped = shipped};
    char out[64];
    int count = 0;

    folder_make(out);
    if (qg_emit(q, out, &selection, &count))
        count = -1;
    folder_remove(out);
    return count;
}

TEST(emit_selects)
{
    struct qg *q = open_toy();
    int all = qg_registry(q)->nkernels;

    assert_int_equal(all, 24);
    assert_int_equal(count_of(q, NULL, NULL, 0), all);
    assert_int_equal(count_of(q, NULL, "", 0), all);
    assert_int_equal(count_of(q, "host", NULL, 0), 6);
    assert_int_equal(count_of(q, "sm_80", NULL, 0), 6);
    assert_int_equal(count_of(q, NULL, "*_scale_*", 0), 6);
    assert_int_equal(count_of(q, "sm_90a", NULL, 1), 1);
    assert_int_equal(count_of(q, NULL, NULL, 1), 2);
    assert_int_equal(count_of(q, NULL, "pingpong", 0), 4);
    assert_int_equal(count_of(q, NULL, "*_dgrad_nn_*tile64*", 0), 1);
    assert_int_equal(count_of(q, NULL, "quern_f16*", 0), 4);
    assert_int_equal(count_of(q, NULL, "f16*", 0), 4);
    assert_int_equal(count_of(q, NULL, "16*", 0), -1);
    assert_int_equal(count_of(q, "sm_90a", "nonsense", 0), -1);
    assert_string_equal(qg_diagnostics(q),
                        "error: no kernel of sm_90a matches 'nonsense'\n");
    assert_int_equal(count_of(q, "sm_100a", NULL, 0), -1);
    assert_string_equal(qg_diagnostics(q),
                        "error: no kernel of sm_100a exists\n");
    qg_close(q);
}

/* ------------------------------------------------------ specs from folders */

static struct qg *open_folder(const char *dir)
{
    static const struct qg_file none = {"README", "", 0};
    const char *const dirs[] = {dir};
    struct qg_options options = {
        .dirs = dirs, .dirs_count = 1, .files = &none, .files_count = 1};
    struct qg *q;

    qg_open_with(&options, &q);
    assert_non_null(q);
    return q;
}

/* The diagnostics of a folder, to the letter. */
static void check_folder(const char *dir, const char *format, ...)
{
    struct qg *q = open_folder(dir);
    char expected[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(expected, sizeof expected, format, list);
    va_end(list);
    assert_string_equal(qg_diagnostics(q), expected);
    qg_close(q);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file_write(path, text);
}

static void make_part(const char *dir, const char *part)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", dir, part);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* Messages have the path as it was given; generated files do not. A mark before
   UTF-8, line ends of another system, and none at the end are fine. */
TEST(folders)
{
    static const struct qg_link link = {"registry", 0, NULL, NULL};
    char dir[64], given[80], place[96];
    const char *text;
    size_t length;
    struct qg *q;

    make_part(folder_make(dir), "recipes");
    put(dir, "recipes/x.lua",
        "\xef\xbb\xbfrecipe \"x\" {\r\n"
        "  element = { x = bf16, w = bf16, dy = bf16 },\r\n  d = bf16,\n}");
    put(dir, "recipes/notes.txt", "not a spec");
    put(dir, "recipes/.hidden.lua", "not a spec");
    snprintf(given, sizeof given, "%s//", dir);
    q = open_folder(given);
    assert_string_equal(qg_diagnostics(q), "");
    assert_int_equal(qg_registry(q)->nrecipes, 1);
    snprintf(place, sizeof place, "%s/recipes/x.lua:1", dir);
    assert_string_equal(qg_registry(q)->recipes[0].spec, place);
    assert_int_equal(qg_registry_text(q, NULL, &link, &text, &length), 0);
    assert_non_null(strstr(text, "\"DIR/recipes/x.lua:1\""));
    assert_null(strstr(text, dir)); /* no path of the machine */
    qg_close(q);
    put(dir, "recipes/y.lua", "recipe \"x\" {}");
    check_folder(given,
                 "%s/recipes/y.lua:1: error: recipe 'x' is already declared "
                 "at %s/recipes/x.lua:1; choose another name\n"
                 "    recipe \"x\" {}\n",
                 dir, dir);
    folder_remove(dir);
}

/* Every error of a folder, one after the other. */
TEST(bad_folders)
{
    char dir[64], path[128], big[1100];

    check_folder("/nowhere/at/all",
                 "/nowhere/at/all: error: cannot read it: No such file or "
                 "directory\n");
    check_folder("/dev/null",
                 "/dev/null: error: cannot read it: Not a directory\n");
    folder_make(dir);
    check_folder(dir,
                 "%s: error: there are no specs below it; *.lua files belong "
                 "into recipes/, layouts/, ragged/ or kernels/\n",
                 dir);
    put(dir, "x.lua", "");
    snprintf(path, sizeof path, "%s/x.lua", dir);
    check_folder(dir,
                 "%s: error: a spec belongs in recipes/, layouts/, ragged/ or "
                 "kernels/ of the folder that is named; move it there, or name "
                 "the folder above\n",
                 path);
    unlink(path);
    make_part(dir, "recipes");
    put(dir, "recipes/a b.lua", "");
    check_folder(dir,
                 "%s/recipes/a b.lua: error: a spec's file name is letters, "
                 "digits, _ and -, then .lua\n",
                 dir);
    snprintf(path, sizeof path, "%s/recipes/a b.lua", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/recipes/pipe.lua", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_folder(dir,
                 "%s/recipes/pipe.lua: error: cannot read it: it is a folder, "
                 "a pipe or a device; a plain file is expected\n",
                 dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/recipes/big.lua", dir);
    file_write(path, "");
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    snprintf(big, sizeof big,
             "%s: error: a spec has at most 1048576 bytes, this one has "
             "1048577\n",
             path);
    check_folder(dir, "%s", big);
    folder_remove(dir);
}

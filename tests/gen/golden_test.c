/* SPDX-License-Identifier: Apache-2.0 */
/*
** golden_test.c: whole generated files against those next to their specs.
**
** Each folder of tests/gen/golden has specs/, templates/ and expected/, whose
** files end in .txt so that no tool takes them for sources. After
** a change that is meant, `make golden` writes expected/ anew; read the
** difference before it is committed.
*/
#include "test_gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A recipe's rule has no file yet: its text stands for it. */
static void add_rules(struct qg *q, struct files *made)
{
    static const char *const suffixes[] = {"c", "cu"};
    const struct quern_registry *registry = qg_registry(q);

    for (int i = 0; i < registry->nrecipes * 2; i++) {
        const struct qn_recipe *recipe = &registry->recipes[i / 2];
        char name[128];
        const char *text;
        size_t length;

        if (recipe->scaling[QN_X].type == QUERN_TYPE_NONE)
            continue;
        snprintf(name, sizeof name, "%s_scale.%s", recipe->name,
                 suffixes[i % 2]);
        assert_int_equal(qg_rule_text(q, recipe->name, QN_X,
                                      i % 2 ? QG_CUDA : QG_C, &text, &length),
                         0);
        files_put(made, name, text, length);
    }
}

/* The generator's output for a folder. */
static void generate(const char *folder, struct files *made)
{
    struct files files = {.count = 0};
    char path[256], out[64];
    struct qg *q;

    snprintf(path, sizeof path, "%s/specs", folder);
    files_read(&files, path, "specs");
    snprintf(path, sizeof path, "%s/templates", folder);
    files_read(&files, path, "templates");
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    folder_make(out);
    if (qg_registry(q)->nkernels)
        assert_int_equal(qg_emit(q, out, NULL, NULL), 0);
    files_read(made, out, "");
    add_rules(q, made);
    folder_remove(out);
    qg_close(q);
    files_free(&files);
}

/* The file that is expected as `path`, which has .txt at its end. */
static const struct qg_file *find(const struct files *files, const char *path)
{
    size_t length = strlen(path) - strlen(".txt");

    for (int i = 0; i < files->count; i++)
        if (strlen(files->at[i].path) == length &&
            !strncmp(files->at[i].path, path, length))
            return &files->at[i];
    return NULL;
}

static void accept(const char *folder, const struct files *made)
{
    mkdir(folder, 0777);
    for (int i = 0; i < made->count; i++) {
        char path[512];

        snprintf(path, sizeof path, "%s/%s.txt", folder, made->at[i].path);
        file_write(path, made->at[i].text);
    }
}

/* In both directions: nothing is missing and nothing else is made. */
static void check_folder(const char *name)
{
    struct files made = {.count = 0}, expected = {.count = 0};
    char folder[128], path[160];

    snprintf(folder, sizeof folder, "tests/gen/golden/%s", name);
    snprintf(path, sizeof path, "%s/expected", folder);
    generate(folder, &made);
    if (getenv("QUERN_ACCEPT"))
        accept(path, &made);
    files_read(&expected, path, "");
    for (int i = 0; i < expected.count; i++) {
        const struct qg_file *file = find(&made, expected.at[i].path);

        if (!file)
            fail_msg("%s: %s is not made", name, expected.at[i].path);
        assert_string_equal(file->text, expected.at[i].text);
    }
    assert_int_equal(made.count, expected.count);
    files_free(&made);
    files_free(&expected);
}

TEST(golden)
{
    check_folder("toy");
    check_folder("scales");
    check_folder("products");
    check_folder("activate");
    check_folder("sweep");
}

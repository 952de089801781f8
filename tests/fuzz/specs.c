/* SPDX-License-Identifier: Apache-2.0 */
/*
** specs.c: specs and templates, of which one file is damaged.
**
** The first line names the file that an input replaces, "--@ PATH" or "//@
** PATH"; without one it is a recipe next to the others.
*/
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "embedded.h"
#include "gen.h"

enum { FILES = 64 };

static struct qg_file files[FILES];
static int nfiles;

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc(FUZZ_MOST + 1);

    FUZZ_HOLDS(file && text);
    *length = fread(text, 1, FUZZ_MOST, file);
    text[*length] = 0;
    fclose(file);
    return text;
}

/* All files below a folder, with paths that begin with `prefix`. */
static void read_folder(const char *folder, const char *prefix)
{
    struct dirent **list;
    int count = scandir(folder, &list, NULL, alphasort);

    FUZZ_HOLDS(count > 0);
    for (int i = 0; i < count; i++) {
        char path[1024], name[1024];
        struct stat status;

        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        snprintf(name, sizeof name, "%s/%s", prefix, list[i]->d_name);
        FUZZ_HOLDS(!stat(path, &status));
        if (list[i]->d_name[0] != '.' && S_ISDIR(status.st_mode)) {
            read_folder(path, name);
        } else if (S_ISREG(status.st_mode)) {
            struct qg_file *file = &files[nfiles++];

            FUZZ_HOLDS(nfiles < FILES); /* the last one is the input's */
            file->path = strdup(name);
            file->text = read_file(path, &file->length);
        }
        free(list[i]);
    }
    free(list);
}

static void free_files(void)
{
    while (nfiles-- > 0) {
        free((void *)(uintptr_t)files[nfiles].path);
        free((void *)(uintptr_t)files[nfiles].text);
    }
}

/* The file that the first line names; -1 if it names none of ours. */
static int find_file(const char *text)
{
    size_t end = strcspn(text, "\n");

    if (strncmp(text, "--@ ", 4) != 0 && strncmp(text, "//@ ", 4) != 0)
        return -1;
    for (int i = 0; i < nfiles; i++)
        if (strlen(files[i].path) == end - 4 &&
            !strncmp(files[i].path, text + 4, end - 4))
            return i;
    return -1;
}

/* Small bounds, so that endless loops end soon. */
static void check(int count)
{
    static const struct qg_link link = {"fuzzed", 0, NULL, NULL};
    struct qg_options options = {.files = files,
                                 .files_count = count,
                                 .instructions = 300000,
                                 .memory = 4 << 20};
    const char *text;
    size_t length;
    struct qg *q;
    int failed = qg_open_with(&options, &q);

    FUZZ_HOLDS(q);
    FUZZ_HOLDS(failed == (qg_diagnostics(q)[0] != 0));
    FUZZ_HOLDS(strlen(qg_registry(q)->hash) == (failed ? 0 : 64));
    if (!failed) /* only some kernels meet this */
        failed = qg_registry_text(q, NULL, &link, &text, &length);
    FUZZ_HOLDS(failed == (qg_diagnostics(q)[0] != 0));
    if (failed)
        FUZZ_HOLDS(strstr(qg_diagnostics(q), "error: "));
    qg_close(q);
}

void fuzz_spec(const char *text, size_t length)
{
    const char *line = memchr(text, '\n', length);
    struct qg_file kept, *file;
    int i, count;

    if (!nfiles) {
        read_folder("tests/gen/golden/toy/specs", "specs");
        read_folder("tests/gen/golden/scales/specs", "specs");
        read_folder("tests/gen/golden/toy/templates", "templates");
        atexit(free_files);
    }
    i = find_file(text);
    count = nfiles + (i < 0);
    file = &files[i < 0 ? nfiles : i];
    kept = *file;
    *file = (struct qg_file){i < 0 ? "specs/recipes/fuzz.lua" : kept.path, text,
                             length};
    if (i >= 0) { /* without the line that is ours */
        file->text = line ? line + 1 : text + length;
        file->length = length - (size_t)(file->text - text);
    }
    check(count);
    *file = kept;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** cases.c: a file of cases, each some files and the diagnostics they give.
**
**     === base                      files that every later case has too
**     --- specs/layouts/tn.lua
**     ...
**     === FIELD_UNKNOWN in words    a case; first the message's name
**     --- specs/recipes/x.lua       its files, which replace those of base
**     recpie "x" {}
**     !! 'recpie' is not defined    the line before gives this error
**     --- expect                    the diagnostics, to the letter, where they
**     ...                           are others than such lines
*/
#include "test_gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Marks are four characters at the beginning of a line. */
static int is_mark(const char *line, const char *mark)
{
    return !strncmp(line, mark, 4);
}

/* The end of the part that begins at `at`: the next line with a mark. */
static const char *end_of(const char *at)
{
    while (*at && !is_mark(at, "=== ") && !is_mark(at, "--- ")) {
        const char *newline = strchr(at, '\n');

        at = newline ? newline + 1 : at + strlen(at);
    }
    return at;
}

/* The rest of the mark's line; returns the line after it. */
static const char *take_title(const char *at, char *out, size_t size)
{
    const char *newline = strchr(at, '\n');

    assert_non_null(newline);
    snprintf(out, size, "%.*s", (int)(newline - at - 4), at + 4);
    return newline + 1;
}

/* With the files of the first case, which is the base of all. */
static struct test_case *add_case(struct test_cases *cases)
{
    struct test_case *added;
    const struct files *base;

    cases->at =
        realloc(cases->at, (size_t)(cases->count + 1) * sizeof *cases->at);
    assert_non_null(cases->at);
    added = memset(&cases->at[cases->count], 0, sizeof *added);
    base = &cases->at[0].files;
    for (int i = 0; cases->count && i < base->count; i++)
        files_put(&added->files, base->at[i].path, base->at[i].text,
                  base->at[i].length);
    cases->count++;
    return added;
}

/* A file without its "!! " lines, which become diagnostics. */
static void add_file(struct test_case *into, const char *path, const char *at,
                     const char *end)
{
    char *text = malloc((size_t)(end - at) + 1), *expect = into->expect;
    size_t length = 0, expected;
    FILE *out = open_memstream(&into->expect, &expected);
    const char *before = at;

    assert_true(text && out);
    fputs(expect ? expect : "", out);
    free(expect);
    for (int line = 0; at < end;) {
        const int size = (int)strcspn(at, "\n") + 1;

        if (strncmp(at, "!! ", 3)) {
            memcpy(text + length, at, (size_t)size);
            length += (size_t)size;
            before = at + strspn(at, " ");
            line++;
        } else {
            fprintf(out, "%s:%d: error: %.*s    %.*s", path, line, size - 3,
                    at + 3, (int)strcspn(before, "\n") + 1, before);
            if (!strncmp(path, "templates/", 10))
                fputs("    while generating quern_bf16_fprop_tn_m_bf16_host, "
                      "of specs/kernels/k.lua:1\n",
                      out);
        }
        at += size;
    }
    fclose(out);
    files_put(&into->files, path, text, length);
    free(text);
}

/* Fails the test that calls it if the file is missing or damaged. */
void cases_read(struct test_cases *cases, const char *path)
{
    size_t length;
    char *text = file_read(path, &length), title[128];
    const char *at = text, *end;
    struct test_case *current = NULL;

    assert_non_null(text);
    memset(cases, 0, sizeof *cases);
    at = end_of(at);
    while (*at) {
        int is_case = is_mark(at, "=== ");

        at = take_title(at, title, sizeof title);
        end = end_of(at);
        if (is_case) {
            current = add_case(cases);
            strcpy(current->name, title);
        } else if (!strcmp(title, "expect")) {
            free(current->expect);
            current->expect = strndup(at, (size_t)(end - at));
        } else {
            add_file(current, title, at, end);
        }
        at = end;
    }
    free(text);
}

void cases_free(struct test_cases *cases)
{
    for (int i = 0; i < cases->count; i++) {
        files_free(&cases->at[i].files);
        free(cases->at[i].expect);
    }
    free(cases->at);
}

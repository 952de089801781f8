/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_gen.h: shared by the generator's tests.
**
** They run in the repository's root and read tests/gen/cases (specs next to the
** diagnostics that they must give) and tests/gen/golden (folders of specs and
** templates next to the files that they must give).
*/
#pragma once

#include "cases.h"
#include "embedded.h"
#include "gen.h"

enum { MAX_FILES = 512 };

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
struct qg *open_files(const struct files *); /* with any result */

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

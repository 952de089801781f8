/* SPDX-License-Identifier: Apache-2.0 */
/* tune_store.h: the files of measured winners, and their lookup by plans. */
#pragma once

#include "tuned/tune_file.h"

struct qn_text;
struct quern_context;

/* A file that was read: its lines, or why it is not used. */
struct qn_tune_source {
    struct qn_tune_source *next;
    struct qn_tune_file file;
    char *path;
    char *refusal; /* NULL: it is used */
};

/* All of one GPU model, in the order of the search. */
struct qn_tune_book {
    struct qn_tune_book *next;
    char gpu[96];
    struct qn_tune_source *sources;
};

/* The measurement of a problem's bucket. */
struct qn_tune_found {
    struct qn_tune_line line;
    char path[512];
    char stale[900]; /* "": no line was skipped; else the last one, and why */
};

/* Set from options and environment, with the context. QUERN_ENOMEM. */
int qn_tune_store_open(struct quern_context *ctx, const char *list);
void qn_tune_store_close(struct quern_context *ctx);

/* 1 in `*known` and the line, of the first file that has one whose kernel is as
   it was when it was measured; a stale line is told to the log once. Files are
   read when the first problem of a GPU model asks; an invalid one is reported
   in the log then, and is no error. QUERN_ENOMEM, QUERN_ECOMPILE. */
int qn_tune_store_find(struct quern_context *ctx, const char *gpu,
                       const struct qn_problem *problem, int sms,
                       struct qn_tune_found *found, int *known);

/* Visit each file that would be used, of any GPU model, until `visit` returns
   a code other than QUERN_OK, and return that. QUERN_ENOMEM. */
typedef int qn_tune_file_visitor(void *user, const char *path,
                                 struct qn_tune_file *);
int qn_tune_store_each(struct quern_context *ctx, qn_tune_file_visitor *visit,
                       void *user);

/* Files that were found and are not used, one line each. QUERN_ENOMEM. */
int qn_tune_store_refused(struct quern_context *ctx, const char *gpu,
                          struct qn_text *text);

/* Add lines to the GPU model's file in the first folder that may be written:
   under a lock, and renamed into place. They replace older ones; if not
   `newer`, only slower and stale ones, and stale ones of them are left out.
   `path` gets the file's. QUERN_EIO; QUERN_EINVAL for one that cannot be read,
   which is left as it is; QUERN_ECOMPILE; QUERN_ENOMEM. */
int qn_tune_store_add(struct quern_context *ctx, struct qn_tune_file *lines,
                      int newer, char *path, size_t size);

/* Read one file, of any GPU: its header says which. Freed with
   qn_tune_file_free. QUERN_EIO; else as qn_tune_file_parse. */
int qn_tune_store_read(struct quern_context *ctx, const char *path,
                       struct qn_tune_file *file);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_store.c: the files of measured winners, and their lookup by plans.
**
** Nothing here is trusted: a file can at worst name a slower kernel, since each
** kernel is judged again for each problem. So it does not matter who may write
** to a folder.
*/
#define _GNU_SOURCE
#include "tuned/tune_store.h"
#include "base/context.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tuned/tune_folders.h"
#include "tuned/tune_key.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define ENDING   ".tune"
#define PATIENCE 5 /* seconds to wait for a lock */
enum { NAME_SIZE = 128 };

static void expect(const char *gpu, struct qn_tune_file *file)
{
    *file = (struct qn_tune_file){.lines = NULL};
    snprintf(file->gpu, sizeof file->gpu, "%s", gpu);
}

/* "NVIDIA H200" is kept in NVIDIA_H200.tune: letters, digits, "-" and ".". */
static void name_file(const char *gpu, char name[NAME_SIZE])
{
    size_t length = 0;

    for (; *gpu && length < NAME_SIZE - sizeof ENDING; gpu++) {
        int plain = (*gpu >= 'a' && *gpu <= 'z') ||
                    (*gpu >= 'A' && *gpu <= 'Z') ||
                    (*gpu >= '0' && *gpu <= '9') || *gpu == '-' ||
                    (*gpu == '.' && length);

        name[length++] = plain ? *gpu : '_';
    }
    strcpy(name + length, ENDING);
}

/* ----------------------------------------------------------------- reading */

/* A file in an open folder. QUERN_ENOMEM: memory or descriptors ran out. */
static int read_file(struct quern_context *ctx, int folder, const char *name,
                     const char *path, struct qn_tune_file *file, int *missing)
{
    struct qn_file_text text;
    enum qn_file_result result;
    int code;

    result = qn_file_read(folder, name, QN_TUNE_MOST, QN_TRUST_ALL, &text);
    *missing = result == QN_FILE_MISSING;
    if (*missing)
        return QUERN_OK;
    if (result == QN_FILE_BUSY)
        return qn_error_set(QUERN_ENOMEM,
                            "%s: host memory ran out, or too many files are "
                            "open",
                            path);
    if (result != QN_FILE_OK)
        return qn_error_set(QUERN_EINVAL,
                            "%s:1: error: no plain file of at most %zu bytes "
                            "that may be read",
                            path, QN_TUNE_MOST);
    code = qn_tune_file_parse(ctx, path, text.data, text.bytes, file);
    free(text.data);
    return code;
}

struct loader {
    struct quern_context *ctx;
    const char *gpu;
    struct qn_tune_source **last;
};

static void free_source(struct qn_tune_source *source)
{
    if (!source)
        return;
    qn_tune_file_free(&source->file);
    free(source->path);
    free(source->refusal);
    free(source);
}

/* NULL if memory ran out. */
static struct qn_tune_source *new_source(struct loader *l, const char *folder,
                                         const char *name)
{
    struct qn_tune_source *source = calloc(1, sizeof *source);
    struct qn_text path = {0};

    qn_text_add(&path, "%s/%s", folder, name);
    if (source) {
        expect(l->gpu, &source->file);
        source->path = qn_text_take(&path);
    }
    qn_text_free(&path);
    if (source && source->path)
        return source;
    free_source(source);
    return NULL;
}

/* Is it one that options or $QUERN_TUNE name, not one that may be missing? */
static int is_named(const struct quern_context *ctx, const char *path)
{
    const char *list = ctx->tune_list;
    const size_t length = strlen(path);

    for (const char *at = list; at && (at = strstr(at, path)); at++)
        if ((at == list || at[-1] == ':') && (!at[length] || at[length] == ':'))
            return 1;
    return 0;
}

/* Tell the log, and the source's readers, of the error that is set. */
static int refuse(struct loader *l, struct qn_tune_source *source,
                  const char *what)
{
    qn_context_log(l->ctx, QUERN_LOG_INFO, "%s: %s is not used",
                   qn_error_text(), what);
    source->refusal = qn_text_copy(qn_error_text());
    return source->refusal ? QUERN_OK : QUERN_ENOMEM;
}

static int add_source(struct loader *l, struct qn_tune_source *source, int code)
{
    if (code) {
        free_source(source);
        return -1;
    }
    *l->last = source;
    l->last = &source->next;
    return 0;
}

/* No error: `quern tune` makes it. */
static int miss_folder(struct loader *l, const char *path, int error)
{
    struct qn_tune_source *source = new_source(l, path, "");

    qn_error_set(QUERN_EINVAL, "%s: %s", path, strerror(error));
    return add_source(l, source,
                      source ? refuse(l, source, "the folder") : QUERN_ENOMEM);
}

/* A visitor: the GPU model's file in a folder, if there is one. */
static int load_folder(void *user, const char *path)
{
    struct loader *l = user;
    struct qn_tune_source *source;
    char name[NAME_SIZE];
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int missing = 0, code;

    if (folder < 0)
        return is_named(l->ctx, path) ? miss_folder(l, path, errno) : 0;
    name_file(l->gpu, name);
    source = new_source(l, path, name);
    code = source ? read_file(l->ctx, folder, name, source->path, &source->file,
                              &missing)
                  : QUERN_ENOMEM;
    close(folder);
    if (code == QUERN_EINVAL)
        code = refuse(l, source, "the file");
    if (!missing)
        return add_source(l, source, code);
    free_source(source);
    return 0;
}

static void free_book(struct qn_tune_book *book)
{
    while (book->sources) {
        struct qn_tune_source *source = book->sources;

        book->sources = source->next;
        free_source(source);
    }
    free(book);
}

/* Needs the lock. NULL if memory ran out. */
static struct qn_tune_book *get_book(struct quern_context *ctx, const char *gpu)
{
    struct qn_tune_book *book = ctx->books;
    struct loader loader = {ctx, gpu, NULL};

    while (book && strcmp(book->gpu, gpu))
        book = book->next;
    if (book)
        return book;
    book = calloc(1, sizeof *book);
    if (!book)
        return NULL;
    snprintf(book->gpu, sizeof book->gpu, "%s", gpu);
    loader.last = &book->sources;
    if (qn_tune_each_folder(ctx, load_folder, &loader)) {
        free_book(book);
        return NULL;
    }
    book->next = ctx->books;
    ctx->books = book;
    return book;
}

/* Needs the lock: the next question reads all files again. */
static void forget(struct quern_context *ctx)
{
    while (ctx->books) {
        struct qn_tune_book *book = ctx->books;

        ctx->books = book->next;
        free_book(book);
    }
}

/* ------------------------------------------------------------------- lists */

/* Files of a folder, in any order. */
struct lister {
    struct quern_context *ctx;
    qn_tune_file_visitor *visit;
    void *user;
    int code;
};

/* One that cannot be used is passed over, as plans do. */
static int list_file(struct lister *l, const char *folder, const char *name)
{
    struct qn_tune_file file;
    struct qn_text path = {0};
    int code;

    qn_text_add(&path, "%s/%s", folder, name);
    if (path.failed)
        return qn_error_memory();
    code = qn_tune_store_read(l->ctx, path.data, &file);
    if (!code) {
        code = l->visit(l->user, path.data, &file);
        qn_tune_file_free(&file);
    } else if (code != QUERN_ENOMEM) {
        code = QUERN_OK;
    }
    qn_text_free(&path);
    return code;
}

static int list_folder(void *user, const char *path)
{
    struct lister *l = user;
    DIR *folder = opendir(path);
    const struct dirent *entry;

    while (!l->code && folder && (entry = readdir(folder))) {
        const char *ending = strrchr(entry->d_name, '.');

        if (ending && !strcmp(ending, ENDING))
            l->code = list_file(l, path, entry->d_name);
    }
    if (folder)
        closedir(folder);
    return l->code != 0;
}

int qn_tune_store_each(struct quern_context *ctx, qn_tune_file_visitor *visit,
                       void *user)
{
    struct lister lister = {ctx, visit, user, QUERN_OK};

    return qn_tune_each_folder(ctx, list_folder, &lister) < 0
               ? qn_error_memory()
               : lister.code;
}

/* --------------------------------------------------------------- questions */

int qn_tune_store_open(struct quern_context *ctx, const char *list)
{
    const char *given = list ? list : secure_getenv("QUERN_TUNE");

    pthread_mutex_init(&ctx->books_lock, NULL);
    pthread_mutex_init(&ctx->measuring, NULL);
    if (!given)
        return QUERN_OK;
    ctx->tune_list = qn_file_list(given);
    return ctx->tune_list ? QUERN_OK : qn_error_memory();
}

void qn_tune_store_close(struct quern_context *ctx)
{
    forget(ctx);
    free(ctx->tune_list);
    pthread_mutex_destroy(&ctx->books_lock);
    pthread_mutex_destroy(&ctx->measuring);
}

/* Told to the log when it is seen first. */
static void skip_stale(struct quern_context *ctx,
                       const struct qn_tune_source *source,
                       const struct qn_tune_line *line, int first,
                       struct qn_tune_found *found)
{
    snprintf(found->stale, sizeof found->stale,
             "%s:%d: %s has changed since it was measured", source->path,
             line->number, line->kernel);
    if (first)
        qn_context_log(ctx, QUERN_LOG_INFO, "%s: the line is not used",
                       found->stale);
}

/* The line of a bucket, if its kernel is as it was. */
static int look_into(struct quern_context *ctx, struct qn_tune_source *source,
                     const char *bucket, int sms, struct qn_tune_found *found,
                     int *known)
{
    struct qn_tune_line *line = qn_tune_file_find(&source->file, bucket, sms);
    const int first = line && line->stale < 0;
    int code = line ? qn_tune_key_check(ctx, line) : QUERN_OK;

    if (code || !line)
        return code;
    if (line->stale) {
        skip_stale(ctx, source, line, first, found);
        return QUERN_OK;
    }
    found->line = *line;
    snprintf(found->path, sizeof found->path, "%s", source->path);
    *known = 1;
    return QUERN_OK;
}

int qn_tune_store_find(struct quern_context *ctx, const char *gpu,
                       const struct qn_problem *problem, int sms,
                       struct qn_tune_found *found, int *known)
{
    struct qn_problem bucket;
    struct qn_tune_book *book;
    char text[256];
    int code;

    qn_tune_file_canonical(problem, &bucket);
    qn_problem_print(&bucket, text, sizeof text);
    *known = 0;
    pthread_mutex_lock(&ctx->books_lock);
    book = get_book(ctx, gpu);
    code = book ? QUERN_OK : qn_error_memory();
    for (struct qn_tune_source *s = book ? book->sources : NULL;
         s && !*known && !code; s = s->next)
        code = look_into(ctx, s, text, sms, found, known);
    pthread_mutex_unlock(&ctx->books_lock);
    return code;
}

int qn_tune_store_refused(struct quern_context *ctx, const char *gpu,
                          struct qn_text *text)
{
    struct qn_tune_book *book;

    pthread_mutex_lock(&ctx->books_lock);
    book = get_book(ctx, gpu);
    for (struct qn_tune_source *s = book ? book->sources : NULL; s; s = s->next)
        if (s->refusal)
            qn_text_add(text, "not used: %s\n", s->refusal);
    pthread_mutex_unlock(&ctx->books_lock);
    return book ? QUERN_OK : qn_error_memory();
}

/* The GPU of the second line, which the parser then finds there. */
static void peek_gpu(const struct qn_file_text *text, char *gpu, size_t size)
{
    const char *line = memchr(text->data, '\n', text->bytes);
    size_t length;

    *gpu = 0;
    if (!line || strncmp(line + 1, "gpu ", 4))
        return;
    length = strcspn(line + 5, "\n");
    if (length < size)
        snprintf(gpu, size, "%.*s", (int)length, line + 5);
}

int qn_tune_store_read(struct quern_context *ctx, const char *path,
                       struct qn_tune_file *file)
{
    struct qn_file_text text;
    enum qn_file_result result;
    char gpu[sizeof file->gpu];
    int code;

    expect("", file);
    result = qn_file_read(AT_FDCWD, path, QN_TUNE_MOST, QN_TRUST_ALL, &text);
    if (result != QN_FILE_OK)
        return qn_error_set(QUERN_EIO, "%s: %s", path,
                            result == QN_FILE_MISSING
                                ? "no such file"
                                : "no plain file of at most 1 MiB that may be "
                                  "read");
    peek_gpu(&text, gpu, sizeof gpu);
    expect(gpu, file);
    code = qn_tune_file_parse(ctx, path, text.data, text.bytes, file);
    free(text.data);
    return code;
}

/* ----------------------------------------------------------------- writing */

/* The first folder that may be written, open and locked. */
struct target {
    int folder; /* -1: none */
    char path[PATH_MAX];
};

/* A stopped process that holds the lock must not block others: at worst,
   lines that two processes add at once are lost. */
static void lock_folder(int folder)
{
    const struct timespec pause = {0, 20000000};

    for (int i = 0; i < PATIENCE * 50 && flock(folder, LOCK_EX | LOCK_NB); i++)
        if (errno == EWOULDBLOCK)
            nanosleep(&pause, NULL);
        else if (errno != EINTR)
            return; /* no locks on this file system */
}

/* A visitor. The lock is the folder's own: no file is left after. */
static int open_target(void *user, const char *path)
{
    struct target *t = user;
    int folder;

    qn_file_folders(path);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return 0;
    if (faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) ||
        strlen(path) >= sizeof t->path) {
        close(folder);
        return 0;
    }
    lock_folder(folder);
    strcpy(t->path, path);
    t->folder = folder;
    return 1;
}

/* Write aside and rename, as the cache does. */
static int replace(int folder, const char *name, const struct qn_text *text)
{
    static atomic_uint serial;
    char aside[NAME_SIZE + 64];
    int done, error;

    snprintf(aside, sizeof aside, ".%s.%ld.%u", name, (long)getpid(),
             atomic_fetch_add(&serial, 1));
    done = qn_file_write(folder, aside, text->data, text->length) &&
           !renameat(folder, aside, folder, name);
    error = errno;
    if (!done)
        unlinkat(folder, aside, 0);
    errno = error;
    return done;
}

/* If not `newer`, a stale line is left out, and replaced by one that is not. */
static int add_line(struct quern_context *ctx, struct qn_tune_file *file,
                    struct qn_tune_line *line, int newer)
{
    struct qn_tune_line *old =
        qn_tune_file_find(file, line->problem, (int)line->sms);
    int code = newer ? QUERN_OK : qn_tune_key_check(ctx, line);

    if (code || (!newer && line->stale))
        return code;
    if (old && !newer)
        code = qn_tune_key_check(ctx, old);
    return code ? code
                : qn_tune_file_add(file, line, newer || (old && old->stale));
}

/* Read again under the lock: another process may have added lines. */
static int merge_into(struct quern_context *ctx, const struct target *t,
                      const char *name, const char *path,
                      struct qn_tune_file *lines, int newer)
{
    struct qn_tune_file file;
    struct qn_text text = {0};
    int missing, code;

    expect(lines->gpu, &file);
    code = read_file(ctx, t->folder, name, path, &file, &missing);
    if (code == QUERN_EINVAL && file.format == 1) {
        qn_context_log(ctx, QUERN_LOG_INFO, "%s: the file is replaced",
                       qn_error_text());
        code = QUERN_OK;
    } else if (code == QUERN_EINVAL) {
        code = QUERN_EIO; /* the file's fault, not an argument's */
    }
    for (int i = 0; !code && i < lines->count; i++)
        code = add_line(ctx, &file, &lines->lines[i], newer);
    if (!code) {
        qn_tune_file_print(&file, &text);
        if (text.failed)
            code = qn_error_memory();
        else if (text.length > QN_TUNE_MOST)
            code = qn_error_set(QUERN_EIO, "%s would have over %zu bytes", path,
                                QN_TUNE_MOST);
        else if (!replace(t->folder, name, &text))
            code = qn_error_set(QUERN_EIO, "%s cannot be written: %s", path,
                                strerror(errno));
    }
    qn_text_free(&text);
    qn_tune_file_free(&file);
    return code;
}

int qn_tune_store_add(struct quern_context *ctx, struct qn_tune_file *lines,
                      int newer, char *path, size_t size)
{
    const char *list = ctx->tune_list;
    struct target target = {.folder = -1};
    char name[NAME_SIZE];
    int code;

    *path = 0;
    if (qn_tune_each_own(ctx, open_target, &target) < 0)
        return qn_error_memory();
    if (target.folder < 0)
        return qn_error_set(
            QUERN_EIO, "no folder for tuned results may be written; %s",
            list && !*list ? "$QUERN_TUNE is empty: none is named"
                           : "$QUERN_TUNE names one");
    name_file(lines->gpu, name);
    snprintf(path, size, "%s/%s", target.path, name);
    code = merge_into(ctx, &target, name, path, lines, newer);
    close(target.folder);
    pthread_mutex_lock(&ctx->books_lock);
    forget(ctx);
    pthread_mutex_unlock(&ctx->books_lock);
    return code;
}

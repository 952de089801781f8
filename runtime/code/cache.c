/* SPDX-License-Identifier: Apache-2.0 */
/*
** cache.c: compiled kernels on disk: find, lock, keep.
**
** An entry is written below new/ and renamed into place as a whole, so a reader
** sees all of it or nothing, whenever a process is killed. Nothing is flushed:
** after a crash of the machine the checksums tell.
*/
#define _GNU_SOURCE
#include "code/cache.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "code/cache_folder.h"
#include "code/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 120 /* seconds to wait for a lock */
#define GC_EVERY 16  /* entries */

enum trouble { NO_WRITABLE, UNTRUSTED, NOT_KEPT, DAMAGED_ENTRY, BUSY_ENTRY };

/* Tell the listener, once for each kind of trouble and cache. A folder that was
   asked for and is not used is an error of its owner. */
static void say(struct qn_cache *cache, enum trouble kind, const char *format,
                ...)
{
    char line[512];
    va_list list;
    int first;

    pthread_mutex_lock(&cache->lock);
    first = !(cache->said >> kind & 1);
    cache->said |= 1u << kind;
    pthread_mutex_unlock(&cache->lock);
    if (!first || !cache->listener.log)
        return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    cache->listener.log(cache->listener.user,
                        kind == UNTRUSTED ? QUERN_LOG_ERROR : QUERN_LOG_INFO,
                        line);
}

/* ----------------------------------------------------------------- opening */

char *qn_cache_default(void)
{
    const char *list = secure_getenv("QUERN_CACHE");
    const char *xdg = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    struct qn_text text = {0};

    if (list)
        return qn_text_copy(list);
    if (xdg && *xdg == '/')
        qn_text_add(&text, "%s/quern", xdg);
    else if (home && *home == '/')
        qn_text_add(&text, "%s/.cache/quern", home);
    else
        qn_text_add(&text, ":"); /* not as requested, so it is reported */
    return qn_text_take(&text);
}

/* Why a folder that is there is not used; NULL for one that is not. */
static const char *fault_of(int error)
{
    switch (error) {
    case EPERM:
        return "it is another user's";
    case EMLINK:
        return "others may write to it; chmod go-w makes it safe";
    case ELOOP:
        return "it is a symbolic link";
    case ENOTDIR:
        return "it is no folder, or a symbolic link";
    case EACCES:
        return "it may not be read";
    case ENAMETOOLONG:
        return "its name is too long";
    }
    return NULL;
}

/* May the open folder be written to? */
static int is_writable(int folder)
{
    return !faccessat(folder, ".", W_OK | X_OK, AT_EACCESS);
}

/* Open the parts; 1 if all are there, or could be made, and may be written. */
static int open_parts(struct qn_cache_folder *folder, int root, int create)
{
    int all = 1;

    for (int i = 0; i < QN_PARTS; i++) {
        int part = qn_file_folder(root, qn_cache_parts[i], create);
        int later = part < 0 && errno == ENOENT && !create;

        folder->parts[i] = part;
        if (part < 0)
            folder->faults[i] = fault_of(errno);
        if (later ? !is_writable(root) : part < 0 || !is_writable(part))
            all = 0;
    }
    return all;
}

/* Report an unused entry, and the reason. */
static void say_faults(struct qn_cache *cache,
                       const struct qn_cache_folder *folder)
{
    if (folder->fault)
        say(cache, UNTRUSTED, "cache %s is not used: %s", folder->path,
            folder->fault);
    for (int i = 0; i < QN_PARTS; i++)
        if (folder->faults[i])
            say(cache, UNTRUSTED, "cache %s/%s is not used: %s", folder->path,
                qn_cache_parts[i], folder->faults[i]);
}

/* 0 if memory ran out. A slash at the end would let a link be followed. */
static int open_folder(struct qn_cache *cache, char *path, int create)
{
    struct qn_cache_folder *folder = &cache->folders[cache->nfolders];
    int wanted = cache->writable < 0;
    int root;

    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';)
        path[--end] = 0;
    *folder = (struct qn_cache_folder){.parts = {-1, -1, -1, -1, -1}};
    if (wanted && create)
        qn_file_folders(path);
    root = qn_file_folder_linked(path);
    if (root < 0 && !(folder->fault = fault_of(errno)))
        folder->writable = wanted && !create && qn_file_can_make(path);
    if (root < 0 && !folder->fault && !folder->writable)
        folder->absent =
            wanted ? "it is not there, and cannot be made" : "it is not there";
    folder->path = qn_text_copy(path);
    if (folder->path && root >= 0)
        folder->writable = open_parts(folder, root, wanted && create) && wanted;
    if (folder->path) {
        if (folder->writable)
            cache->writable = cache->nfolders;
        cache->nfolders++;
        say_faults(cache, folder);
    }
    if (root >= 0)
        close(root);
    return folder->path != NULL;
}

/* Open each folder of the list. 0 if memory ran out. */
static int open_list(struct qn_cache *cache, char *list, int create)
{
    char *rest = list;
    size_t count = 1;

    for (const char *at = list; *at; at++)
        count += *at == ':';
    cache->folders = calloc(count, sizeof *cache->folders);
    if (!cache->folders)
        return 0;
    for (char *path; (path = strsep(&rest, ":"));)
        if (*path && !open_folder(cache, path, create))
            return 0;
    return 1;
}

static int open_cache(const char *list,
                      const struct qn_cache_listener *listener, int create,
                      struct qn_cache **out)
{
    char *copy = list ? qn_text_copy(list) : qn_cache_default();
    struct qn_cache *cache = calloc(1, sizeof *cache);
    int code = QUERN_OK;

    *out = NULL;
    if (!copy || !cache) {
        free(copy);
        free(cache);
        return qn_error_memory();
    }
    pthread_mutex_init(&cache->lock, NULL);
    cache->writable = -1;
    cache->limit = QN_CACHE_LIMIT;
    cache->listed = *copy != 0;
    if (listener)
        cache->listener = *listener;
    if (open_list(cache, copy, create)) {
        *out = cache;
    } else {
        qn_cache_close(cache);
        code = qn_error_memory();
    }
    free(copy);
    return code;
}

int qn_cache_open(const char *list, const struct qn_cache_listener *listener,
                  struct qn_cache **out)
{
    return open_cache(list, listener, 1, out);
}

int qn_cache_look(const char *list, struct qn_cache **out)
{
    return open_cache(list, NULL, 0, out);
}

void qn_cache_close(struct qn_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < cache->nfolders; i++) {
        for (int part = 0; part < QN_PARTS; part++)
            if (cache->folders[i].parts[part] >= 0)
                close(cache->folders[i].parts[part]);
        free(cache->folders[i].path);
    }
    free(cache->folders);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

const char *qn_cache_folder(const struct qn_cache *cache, int i)
{
    return i < cache->nfolders ? cache->folders[i].path : NULL;
}

const char *qn_cache_fault(const struct qn_cache *cache, int i)
{
    const struct qn_cache_folder *folder = &cache->folders[i];
    const char *fault = folder->fault ? folder->fault : folder->absent;

    for (int part = 0; part < QN_PARTS && !fault; part++)
        fault = folder->faults[part];
    return fault;
}

int qn_cache_refused(const struct qn_cache *cache, int i)
{
    return cache->folders[i].fault != NULL;
}

int qn_cache_writable(const struct qn_cache *cache)
{
    return cache->writable;
}

int qn_cache_work(const struct qn_cache *cache, char *path, size_t size)
{
    return cache->writable >= 0 &&
           (size_t)snprintf(path, size, "%s/%s",
                            cache->folders[cache->writable].path,
                            qn_cache_parts[QN_PART_NEW]) < size;
}

static _Thread_local double wait_end;

void qn_cache_wait_until(double end)
{
    wait_end = end;
}

double qn_cache_wait_end(void)
{
    return wait_end;
}

/* Is this thread's own time up? */
static int is_late(void)
{
    return wait_end > 0 && qn_clock_seconds() > wait_end;
}

/* Polled rather than waited for: a process stopped with a lock in
   hand must not stop everybody else. */
int qn_cache_lock(struct qn_cache *cache, const char *key)
{
    long long left = PATIENCE * 1000000000LL, pause = 200000;
    int lock;

    while ((lock = qn_cache_try_lock(cache, key)) == QN_LOCK_BUSY && left > 0) {
        const struct timespec now = {0, (long)pause};

        if (is_late())
            return QN_LOCK_LATE;
        nanosleep(&now, NULL);
        left -= pause;
        if (left < (PATIENCE - 1) * 1000000000LL)
            say(cache, BUSY_ENTRY,
                "cache: waits for another process, which compiles entry "
                "%.12s...",
                key);
        pause = pause < 20000000 ? pause * 2 : 20000000;
    }
    return lock < 0 ? -1 : lock;
}

int qn_cache_index(struct qn_cache *cache, int from, const char *index,
                   char key[QN_KEY_SIZE])
{
    for (int i = from; i < cache->nfolders; i++) {
        int folder = cache->folders[i].parts[QN_PART_INDEX];

        if (folder >= 0 &&
            qn_cache_index_read(folder, index, key) == QN_INDEX_GOOD)
            return i + 1;
    }
    return 0;
}

/* Written aside and renamed, as entries are. */
void qn_cache_index_store(struct qn_cache *cache, const char *index,
                          const char *key)
{
    const struct qn_cache_folder *folder;
    char name[QN_NAME_SIZE], line[QN_INDEX_LIMIT], sum[QN_KEY_SIZE];

    if (cache->writable < 0)
        return;
    folder = &cache->folders[cache->writable];
    qn_cache_unique(index, name, sizeof name);
    snprintf(line, sizeof line, "2 %s", key);
    qn_cache_sum(index, line, strlen(line), sum);
    snprintf(line, sizeof line, "2 %s %s\n", key, sum);
    if (!qn_file_write(folder->parts[QN_PART_NEW], name, line, strlen(line)) ||
        renameat(folder->parts[QN_PART_NEW], name, folder->parts[QN_PART_INDEX],
                 index))
        unlinkat(folder->parts[QN_PART_NEW], name, 0);
}

/* Set aside, kept for an investigation. Needs the lock, or another
   entry to replace it: the intended one may have been rebuilt. */
static void set_aside(struct qn_cache *cache, const char *key)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    char name[QN_NAME_SIZE];

    qn_cache_unique(key, name, sizeof name);
    qn_file_unlock(folder->parts[QN_PART_ENTRIES], key);
    if (!renameat(folder->parts[QN_PART_ENTRIES], key,
                  folder->parts[QN_PART_DAMAGED], name))
        utimensat(folder->parts[QN_PART_DAMAGED], name, NULL,
                  AT_SYMLINK_NOFOLLOW); /* kept from now on */
}

int qn_cache_load(struct qn_cache *cache, const char *key, int repair, int own,
                  struct qn_cache_object *object)
{
    for (int i = 0; i < cache->nfolders; i++) {
        struct qn_cache_folder *folder = &cache->folders[i];
        int entries = folder->parts[QN_PART_ENTRIES];
        enum qn_entry_state state;

        if (entries < 0)
            continue;
        state = qn_entry_load(entries, key, own, object);
        if (state == QN_ENTRY_GOOD) {
            if (folder->writable)
                qn_entry_touch(entries, key);
            return 1;
        }
        if (state != QN_ENTRY_NONE && folder->writable && repair) {
            say(cache, DAMAGED_ENTRY,
                "cache %s: entry %.12s... is damaged; it was set aside",
                folder->path, key);
            set_aside(cache, key);
        }
    }
    return 0;
}

/* ----------------------------------------------------------------- keeping */

/* Is the existing entry as good as ours? */
static int is_good(int entries, const char *key)
{
    struct qn_cache_object object;
    int good = qn_entry_load(entries, key, 0, &object) == QN_ENTRY_GOOD;

    if (good)
        free(object.data);
    return good;
}

/* Rename it into place. Without a lock another may have been first: theirs is
   as good, unless it is damaged; that could not be set aside before. */
static int place(struct qn_cache *cache, const char *name, const char *key)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    int aside = folder->parts[QN_PART_NEW];
    int entries = folder->parts[QN_PART_ENTRIES];

    for (int tries = 0; renameat(aside, name, entries, key); tries++) {
        int error = errno;

        if (error != EEXIST && error != ENOTEMPTY && error != ENOTDIR)
            return 0;
        if (is_good(entries, key)) {
            qn_file_remove(aside, name);
            return 1;
        }
        if (tries) {
            errno = error;
            return 0;
        }
        set_aside(cache, key);
    }
    return 1;
}

/* Write below new/ and rename. A failure leaves nothing but errno. */
static int store_in(struct qn_cache *cache, const char *key, const char *name,
                    const struct qn_cache_item *item)
{
    int aside = cache->folders[cache->writable].parts[QN_PART_NEW];
    int entry = qn_file_folder_new(aside, name);
    int kept, error;

    if (entry < 0)
        return 0;
    kept = qn_entry_write(entry, key, item) && place(cache, name, key);
    error = errno;
    close(entry);
    if (!kept)
        qn_file_remove(aside, name);
    errno = error;
    return kept;
}

/* At the first entry, and then now and then: it reads all entries' sizes. */
static void make_room(struct qn_cache *cache)
{
    struct qn_cache_gc gone;

    if (__atomic_fetch_add(&cache->stored, 1, __ATOMIC_RELAXED) % GC_EVERY == 0)
        qn_cache_gc(cache, 0, cache->limit, &gone);
}

int qn_cache_store(struct qn_cache *cache, const char *key,
                   const struct qn_cache_item *item)
{
    char name[QN_NAME_SIZE];

    if (cache->writable < 0) {
        if (cache->listed)
            say(cache, NO_WRITABLE,
                "no folder of the cache may be written: kernels are compiled "
                "again by each process");
        return 0;
    }
    qn_cache_unique(key, name, sizeof name);
    errno = 0;
    if (!store_in(cache, key, name, item)) {
        say(cache, NOT_KEPT,
            "cache %s keeps nothing more (%s): kernels are compiled again by "
            "each process",
            cache->folders[cache->writable].path, strerror(errno));
        return 0;
    }
    make_room(cache);
    return 1;
}

/* The cache's listener. */
static void forward(void *user, int level, const char *line)
{
    qn_context_log(user, level, "%s", line);
}

int qn_cache_of(struct quern_context *ctx, struct qn_cache **out)
{
    const struct qn_cache_listener listener = {forward, ctx};
    int code = QUERN_OK;

    pthread_mutex_lock(&ctx->lock);
    if (!ctx->disk) {
        code = qn_cache_open(ctx->cache_list, &listener, &ctx->disk);
        if (!code)
            ctx->disk->limit = ctx->cache_limit;
    }
    *out = ctx->disk;
    pthread_mutex_unlock(&ctx->lock);
    return code;
}

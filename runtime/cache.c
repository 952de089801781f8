/*
** cache.c: compiled kernels on disk: find, lock, keep.
**
** An entry is written below new/ and renamed into place as a whole, so a
** reader sees all of it or nothing, whatever is killed when. Nothing is
** flushed: after a crash of the machine the checksums tell.
*/
#define _GNU_SOURCE
#include "cache_folder.h"
#include "entry.h"
#include "error.h"
#include "file.h"
#include "text.h"

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

static const char *const parts[QN_PARTS] = {"index", "entries", "lock", "new",
                                            "damaged"};

enum trouble { NO_WRITABLE, UNTRUSTED, NOT_KEPT, DAMAGED_ENTRY };

/* Tell the listener, once for each kind of trouble and cache. */
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
    cache->listener.log(cache->listener.user, QUERN_LOG_INFO, line);
}

int qn_cache_is_key(const char *name)
{
    return strlen(name) == QN_KEY_SIZE - 1 &&
           strspn(name, "0123456789abcdef") == QN_KEY_SIZE - 1;
}

/* Processes differ by number or, where a number was used again, by time. */
void qn_cache_unique(const char *key, char *name, size_t size)
{
    static atomic_uint serial;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, size, "%s.%ld.%lld.%09ld.%u", key, (long)getpid(),
             (long long)now.tv_sec, now.tv_nsec, atomic_fetch_add(&serial, 1));
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
    return qn_text_take(&text);
}

/* Open the parts; 1 if all are there and may be written. */
static int open_parts(struct qn_cache_folder *folder, int root, int create)
{
    int all = 1;

    for (int i = 0; i < QN_PARTS; i++) {
        folder->parts[i] = qn_file_folder(root, parts[i], create);
        if (folder->parts[i] < 0 ||
            faccessat(folder->parts[i], ".", W_OK | X_OK, AT_EACCESS))
            all = 0;
    }
    return all;
}

/* 1 if the folder serves at all. */
static int open_folder(struct qn_cache *cache, const char *path)
{
    struct qn_cache_folder *folder = &cache->folders[cache->nfolders];
    int wanted = cache->writable < 0;
    int root;

    if (wanted)
        qn_file_folders(path);
    root = qn_file_folder(AT_FDCWD, path, 0);
    if (root < 0) {
        if (errno == EPERM)
            say(cache, UNTRUSTED,
                "cache %s is not used: others may write to it", path);
        return 1;
    }
    folder->path = qn_text_copy(path);
    if (!folder->path) {
        close(root);
        return 0;
    }
    folder->writable = open_parts(folder, root, wanted) && wanted;
    if (folder->writable)
        cache->writable = cache->nfolders;
    cache->nfolders++;
    close(root);
    return 1;
}

/* Open each folder of the list. 0 if memory ran out. */
static int open_list(struct qn_cache *cache, char *list)
{
    char *rest = list;
    size_t count = 1;

    for (const char *at = list; *at; at++)
        count += *at == ':';
    cache->folders = calloc(count, sizeof *cache->folders);
    if (!cache->folders)
        return 0;
    for (char *path; (path = strsep(&rest, ":"));)
        if (*path && !open_folder(cache, path))
            return 0;
    return 1;
}

int qn_cache_open(const char *list, const struct qn_cache_listener *listener,
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
    cache->listed = *copy != 0;
    if (listener)
        cache->listener = *listener;
    if (open_list(cache, copy)) {
        *out = cache;
    } else {
        qn_cache_close(cache);
        code = qn_error_memory();
    }
    free(copy);
    return code;
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

int qn_cache_writable(const struct qn_cache *cache)
{
    return cache->writable;
}

/* ------------------------------------------------------------------- locks */

/* Is the locked file still the one of that name? gc removes old ones. */
static int still_there(int folder, const char *key, int file)
{
    struct stat ours, theirs;

    return !fstat(file, &ours) &&
           !fstatat(folder, key, &theirs, AT_SYMLINK_NOFOLLOW) &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

int qn_cache_try_lock(struct qn_cache *cache, const char *key, int wait)
{
    int folder, file;

    if (cache->writable < 0)
        return -1;
    folder = cache->folders[cache->writable].parts[QN_PART_LOCK];
    for (;;) {
        int failed;

        file = openat(folder, key,
                      O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                      0600);
        if (file < 0)
            return -1;
        do
            failed = flock(file, LOCK_EX | (wait ? 0 : LOCK_NB));
        while (failed && errno == EINTR);
        if (!failed && still_there(folder, key, file))
            return file;
        close(file);
        if (failed)
            return -1;
    }
}

int qn_cache_lock(struct qn_cache *cache, const char *key)
{
    return qn_cache_try_lock(cache, key, 1);
}

void qn_cache_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

/* ----------------------------------------------------------------- finding */

int qn_cache_index(struct qn_cache *cache, const char *index,
                   char key[QN_KEY_SIZE])
{
    for (int i = 0; i < cache->nfolders; i++) {
        int folder = cache->folders[i].parts[QN_PART_INDEX];
        struct qn_file_text text;
        int found;

        if (folder < 0 || qn_file_read(folder, index, QN_KEY_SIZE,
                                       QN_TRUST_ROOT, &text) != QN_FILE_OK)
            continue;
        text.data[strcspn(text.data, "\n")] = 0;
        found = qn_cache_is_key(text.data);
        if (found)
            memcpy(key, text.data, QN_KEY_SIZE);
        free(text.data);
        if (found)
            return 1;
    }
    return 0;
}

/* Written aside and renamed, as entries are. */
void qn_cache_index_store(struct qn_cache *cache, const char *index,
                          const char *key)
{
    const struct qn_cache_folder *folder;
    char name[QN_NAME_SIZE], line[QN_KEY_SIZE + 1];

    if (cache->writable < 0)
        return;
    folder = &cache->folders[cache->writable];
    qn_cache_unique(index, name, sizeof name);
    snprintf(line, sizeof line, "%s\n", key);
    if (!qn_file_write(folder->parts[QN_PART_NEW], name, line, strlen(line)) ||
        renameat(folder->parts[QN_PART_NEW], name, folder->parts[QN_PART_INDEX],
                 index))
        unlinkat(folder->parts[QN_PART_NEW], name, 0);
}

/* Out of the way, but kept for whoever wants to know what happened.
   Only the holder of the lock may: another could hit a rebuilt entry. */
static void set_aside(struct qn_cache *cache, const char *key)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    char name[QN_NAME_SIZE];

    qn_cache_unique(key, name, sizeof name);
    renameat(folder->parts[QN_PART_ENTRIES], key,
             folder->parts[QN_PART_DAMAGED], name);
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
        if (state == QN_ENTRY_DAMAGED && folder->writable && repair) {
            say(cache, DAMAGED_ENTRY,
                "cache %s: entry %.12s... is damaged; it was set aside",
                folder->path, key);
            set_aside(cache, key);
        }
    }
    return 0;
}

/* ----------------------------------------------------------------- keeping */

/* Write below new/ and rename. A failure leaves nothing but errno. */
static int store_in(struct qn_cache *cache, const char *key, const char *name,
                    const struct qn_cache_item *item)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    int aside = folder->parts[QN_PART_NEW];
    int entry = qn_file_folder(aside, name, 1);
    int kept, error;

    if (entry < 0)
        return 0;
    kept = qn_entry_write(entry, item) &&
           !renameat(aside, name, folder->parts[QN_PART_ENTRIES], key);
    error = errno;
    close(entry);
    if (!kept)
        qn_file_remove(aside, name);
    errno = error;
    /* without a lock another may have been first: theirs is as good */
    return kept || error == EEXIST || error == ENOTEMPTY;
}

int qn_cache_store(struct qn_cache *cache, const char *key,
                   const struct qn_cache_item *item)
{
    char name[QN_NAME_SIZE];
    struct qn_cache_gc gone;

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
    qn_cache_gc(cache, QN_CACHE_LIMIT, &gone);
    return 1;
}

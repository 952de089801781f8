/* SPDX-License-Identifier: Apache-2.0 */
/* cache_gc.c: visit the cache's entries, and make room. */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "code/cache_folder.h"
#include "code/entry.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ABANDONED 3600 /* seconds after which new/ is not written to */
#define MINUTE    60

/* Call `visit` with each name in an open folder until it returns nonzero. */
static int each_name(int folder, int (*visit)(void *user, const char *name),
                     void *user)
{
    int copy = folder < 0
                   ? -1
                   : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int result = 0;

    if (!list) {
        if (copy >= 0)
            close(copy);
        return 0;
    }
    while (!result && (entry = readdir(list)))
        if (entry->d_name[0] != '.')
            result = visit(user, entry->d_name);
    closedir(list);
    return result;
}

/* -------------------------------------------------------------------- each */

struct walk {
    const struct qn_cache *cache;
    const struct qn_cache_folder *folder;
    int verify;
    int (*visit)(void *user, const struct qn_cache_entry *);
    void *user;
};

/* Something that is no good entry, by the folder's part that it is in. */
static int visit_fault(const struct walk *walk, const char *part,
                       const char *name, const char *fault)
{
    char path[300];
    struct qn_cache_entry shown = {.folder = walk->folder->path,
                                   .writable = walk->folder->writable,
                                   .key = path,
                                   .damaged = 1,
                                   .fault = fault};

    snprintf(path, sizeof path, "%s%s%s", part, *name ? "/" : "", name);
    return walk->visit(walk->user, &shown);
}

/* Files that are no keys, or that are gone meanwhile, are skipped. */
static int visit_entry(void *user, const char *name)
{
    const struct walk *walk = user;
    struct qn_cache_entry shown = {.folder = walk->folder->path,
                                   .writable = walk->folder->writable,
                                   .key = name};
    int entries = walk->folder->parts[QN_PART_ENTRIES];
    struct qn_entry entry;
    enum qn_entry_state state;

    if (!qn_cache_is_key(name))
        return 0;
    state = walk->verify ? qn_entry_verify(entries, name, &entry)
                         : qn_entry_read(entries, name, &entry);
    if (state == QN_ENTRY_NONE)
        return 0;
    shown.damaged = state == QN_ENTRY_DAMAGED;
    shown.other = state == QN_ENTRY_OTHER;
    shown.fault = shown.damaged ? entry.fault : NULL;
    shown.used = shown.damaged ? 0 : entry.used;
    if (state == QN_ENTRY_GOOD) {
        memcpy(shown.kernel, entry.kernel, sizeof shown.kernel);
        memcpy(shown.arch, entry.arch, sizeof shown.arch);
        memcpy(shown.compiler, entry.compiler, sizeof shown.compiler);
    }
    for (int file = 0; file < QN_ENTRY_FILES && !shown.damaged; file++)
        shown.bytes += (int64_t)entry.bytes[file];
    return walk->visit(walk->user, &shown);
}

/* In any folder: an index may lead to a read-only one. */
static int has_entry(const struct qn_cache *cache, const char *key)
{
    struct stat st;

    for (int i = 0; i < cache->nfolders; i++)
        if (cache->folders[i].parts[QN_PART_ENTRIES] >= 0 &&
            !fstatat(cache->folders[i].parts[QN_PART_ENTRIES], key, &st,
                     AT_SYMLINK_NOFOLLOW))
            return 1;
    return 0;
}

/* Files that are no keys are skipped, as among entries. */
static int visit_index(void *user, const char *name)
{
    const struct walk *walk = user;
    int folder = walk->folder->parts[QN_PART_INDEX];
    char key[QN_KEY_SIZE];
    const char *fault = NULL;
    struct stat st;

    if (!qn_cache_is_key(name))
        return 0;
    switch (qn_cache_index_read(folder, name, key)) {
    case QN_INDEX_BAD:
        fault = "it differs from the stored one, or cannot be trusted";
        break;
    case QN_INDEX_GOOD:
        fault = has_entry(walk->cache, key) ? NULL : "its entry is gone";
        break;
    case QN_INDEX_OTHER:
        break;
    }
    if (!fault || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    return visit_fault(walk, "index", name, fault);
}

/* Entries that opening refused. */
static int visit_refused(const struct walk *walk)
{
    const struct qn_cache_folder *folder = walk->folder;
    int result = 0;

    if (folder->fault)
        result = visit_fault(walk, "", "", folder->fault);
    for (int i = 0; i < QN_PARTS && !result; i++)
        if (folder->faults[i])
            result =
                visit_fault(walk, qn_cache_parts[i], "", folder->faults[i]);
    return result;
}

int qn_cache_each(struct qn_cache *cache, int verify,
                  int (*visit)(void *user, const struct qn_cache_entry *),
                  void *user)
{
    int result = 0;

    for (int i = 0; !result && i < cache->nfolders; i++) {
        struct walk walk = {cache, &cache->folders[i], verify, visit, user};

        if (verify)
            result = visit_refused(&walk);
        if (!result)
            result = each_name(cache->folders[i].parts[QN_PART_ENTRIES],
                               visit_entry, &walk);
        if (!result && verify)
            result = each_name(cache->folders[i].parts[QN_PART_INDEX],
                               visit_index, &walk);
    }
    return result;
}

/* ---------------------------------------------------------------------- gc */

struct item {
    char key[QN_KEY_SIZE];
    int64_t bytes, used;
    int damaged; /* or unwanted */
};

struct list {
    struct item *items;
    int count;
    int64_t now;
    int failed;
    int (*unwanted)(void *user, const struct qn_cache_entry *); /* or NULL */
    void *user;
};

/* Add to gc's list of removable files: read-only folders are not ours, and
   indexes are swept later. */
static int collect(void *user, const struct qn_cache_entry *entry)
{
    struct list *list = user;
    struct item *item;

    if (!entry->writable || !qn_cache_is_key(entry->key))
        return 0;
    item = qn_grow(list->items, list->count, sizeof *item);
    if (!item) {
        list->failed = 1;
        return 1;
    }
    list->items = item;
    item += list->count++;
    memcpy(item->key, entry->key, QN_KEY_SIZE);
    item->bytes = entry->bytes;
    item->used = entry->used <= list->now + MINUTE ? entry->used : 0;
    item->damaged =
        list->unwanted ? list->unwanted(list->user, entry) : entry->damaged;
    return 0;
}

/* Damaged ones first, then by last use. A time in the future tells nothing: it
   was set by a fast clock, and a use would have corrected it. Entries stored a
   moment ago may be ahead of time(): files' clock is finer, and another's on
   shared disks. */
static int compare(const void *left, const void *right)
{
    const struct item *a = left, *b = right;

    if (a->damaged != b->damaged)
        return b->damaged - a->damaged;
    if (a->used != b->used)
        return a->used < b->used ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* The holder of the lock is about to use the entry: leave it. Without locks,
   a reader finds it damaged and makes it again. */
static int remove_entry(struct qn_cache *cache, const char *key)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    int lock = qn_cache_try_lock(cache, key);
    char name[QN_NAME_SIZE];
    int removed;

    if (lock == QN_LOCK_BUSY)
        return 0;
    qn_cache_unique(key, name, sizeof name);
    qn_file_unlock(folder->parts[QN_PART_ENTRIES], key);
    removed = !renameat(folder->parts[QN_PART_ENTRIES], key,
                        folder->parts[QN_PART_NEW], name);
    if (removed)
        qn_file_remove(folder->parts[QN_PART_NEW], name);
    unlinkat(folder->parts[QN_PART_LOCK], key, 0);
    qn_cache_unlock(lock);
    return removed;
}

struct sweep {
    struct qn_cache *cache;
    int folder;
    time_t now;
};

/* Files left in new/ or damaged/ by a process that is gone. */
static int remove_abandoned(void *user, const char *name)
{
    const struct sweep *sweep = user;
    struct stat st;

    if (!fstatat(sweep->folder, name, &st, AT_SYMLINK_NOFOLLOW) &&
        llabs((long long)sweep->now - st.st_mtime) > ABANDONED)
        qn_file_remove(sweep->folder, name);
    return 0;
}

/* An index whose entry is gone leads nowhere, nor does one that is damaged. */
static int remove_stale(void *user, const char *name)
{
    const struct sweep *sweep = user;
    char key[QN_KEY_SIZE];
    enum qn_index_state state;

    if (!qn_cache_is_key(name))
        return 0;
    state = qn_cache_index_read(sweep->folder, name, key);
    if (state == QN_INDEX_BAD ||
        (state == QN_INDEX_GOOD && !has_entry(sweep->cache, key)))
        qn_file_remove(sweep->folder, name);
    return 0;
}

/* Locks without an entry. A process that holds one, or is about to, is
   younger than that, or checks again that it exists. */
static int remove_lock(void *user, const char *name)
{
    const struct sweep *sweep = user;
    struct stat st;
    int lock;

    if (!qn_cache_is_key(name) || has_entry(sweep->cache, name) ||
        fstatat(sweep->folder, name, &st, AT_SYMLINK_NOFOLLOW) ||
        llabs((long long)sweep->now - st.st_mtime) <= ABANDONED)
        return 0;
    lock = qn_cache_try_lock(sweep->cache, name);
    if (lock >= 0)
        unlinkat(sweep->folder, name, 0);
    qn_cache_unlock(lock);
    return 0;
}

/* Files that no entry needs: abandoned work, damage an hour old, dead
   indexes. */
static void sweep_rests(struct qn_cache *cache)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    struct sweep sweep = {.cache = cache, .now = time(NULL)};

    sweep.folder = folder->parts[QN_PART_NEW];
    each_name(sweep.folder, remove_abandoned, &sweep);
    sweep.folder = folder->parts[QN_PART_DAMAGED];
    each_name(sweep.folder, remove_abandoned, &sweep);
    sweep.folder = folder->parts[QN_PART_INDEX];
    each_name(sweep.folder, remove_stale, &sweep);
    sweep.folder = folder->parts[QN_PART_LOCK];
    each_name(sweep.folder, remove_lock, &sweep);
}

/* Remove damaged and unwanted ones, then the oldest beyond the limit. */
static int clean(struct qn_cache *cache, struct list *list, int verify,
                 int64_t limit, struct qn_cache_gc *gc)
{
    memset(gc, 0, sizeof *gc);
    if (cache->writable < 0)
        return QUERN_OK;
    list->now = (int64_t)time(NULL);
    qn_cache_each(cache, verify, collect, list);
    if (list->count)
        qsort(list->items, (size_t)list->count, sizeof *list->items, compare);
    for (int i = 0; i < list->count; i++)
        gc->kept_bytes += list->items[i].bytes;
    gc->kept = list->count;
    for (int i = 0; i < list->count; i++) {
        const struct item *item = &list->items[i];

        if ((!item->damaged && gc->kept_bytes <= limit) ||
            !remove_entry(cache, item->key))
            continue;
        gc->removed++;
        gc->kept--;
        gc->removed_bytes += item->bytes;
        gc->kept_bytes -= item->bytes;
    }
    sweep_rests(cache);
    free(list->items);
    return list->failed ? qn_error_memory() : QUERN_OK;
}

int qn_cache_gc(struct qn_cache *cache, int verify, int64_t limit,
                struct qn_cache_gc *gc)
{
    struct list list = {.items = NULL};

    return clean(cache, &list, verify, limit, gc);
}

int qn_cache_remove(struct qn_cache *cache,
                    int (*unwanted)(void *user, const struct qn_cache_entry *),
                    void *user, struct qn_cache_gc *gc)
{
    struct list list = {.unwanted = unwanted, .user = user};

    return clean(cache, &list, 0, INT64_MAX, gc);
}

/* ------------------------------------------------------------------- limits */

int qn_cache_parse_size(const char *text, int64_t *bytes)
{
    static const char units[] = "KMGT";
    const char *end = qn_text_number(text, bytes), *unit;
    int shift;

    if (!end || !*end)
        return end != NULL;
    unit = strchr(units, *end);
    if (!unit || end[1])
        return 0;
    shift = 10 * (int)(unit - units + 1);
    if (*bytes > INT64_MAX >> shift)
        return 0;
    *bytes <<= shift;
    return 1;
}

/*
** cache_gc.c: walk over the cache's entries, and make room.
*/
#define _GNU_SOURCE
#include "cache_folder.h"
#include "entry.h"
#include "error.h"
#include "file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ABANDONED 3600 /* seconds after which nobody writes in new/ */

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
    const struct qn_cache_folder *folder;
    int verify;
    int (*visit)(void *user, const struct qn_cache_entry *);
    void *user;
};

/* What is no key, or is gone meanwhile, is passed over. */
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
    state = qn_entry_read(entries, name, &entry);
    if (state == QN_ENTRY_GOOD && walk->verify)
        state = qn_entry_verify(entries, name);
    if (state == QN_ENTRY_NONE)
        return 0;
    shown.damaged = state == QN_ENTRY_DAMAGED;
    if (!shown.damaged) {
        memcpy(shown.kernel, entry.kernel, sizeof shown.kernel);
        memcpy(shown.arch, entry.arch, sizeof shown.arch);
        memcpy(shown.compiler, entry.compiler, sizeof shown.compiler);
        shown.used = entry.used;
        for (int file = 0; file < QN_ENTRY_FILES; file++)
            shown.bytes += (int64_t)entry.bytes[file];
    }
    return walk->visit(walk->user, &shown);
}

int qn_cache_each(struct qn_cache *cache, int verify,
                  int (*visit)(void *user, const struct qn_cache_entry *),
                  void *user)
{
    int result = 0;

    for (int i = 0; !result && i < cache->nfolders; i++) {
        struct walk walk = {&cache->folders[i], verify, visit, user};

        result = each_name(cache->folders[i].parts[QN_PART_ENTRIES],
                           visit_entry, &walk);
    }
    return result;
}

/* ---------------------------------------------------------------------- gc */

struct item {
    char key[QN_KEY_SIZE];
    int64_t bytes, used;
    int damaged;
};

struct list {
    struct item *items;
    size_t count, room;
    int failed;
};

/* Into the list of what gc may remove: read-only folders are not ours. */
static int collect(void *user, const struct qn_cache_entry *entry)
{
    struct list *list = user;
    struct item *item;

    if (!entry->writable)
        return 0;
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        struct item *items = realloc(list->items, room * sizeof *items);

        if (!items) {
            list->failed = 1;
            return 1;
        }
        list->items = items;
        list->room = room;
    }
    item = &list->items[list->count++];
    memcpy(item->key, entry->key, QN_KEY_SIZE);
    item->bytes = entry->bytes;
    item->used = entry->used;
    item->damaged = entry->damaged;
    return 0;
}

/* Damaged ones first, then by last use. */
static int compare(const void *left, const void *right)
{
    const struct item *a = left, *b = right;

    if (a->damaged != b->damaged)
        return b->damaged - a->damaged;
    if (a->used != b->used)
        return a->used < b->used ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* Whoever holds the lock is about to use the entry: leave it. */
static int remove_entry(struct qn_cache *cache, const char *key)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    int lock = qn_cache_try_lock(cache, key, 0);
    char name[QN_NAME_SIZE];
    int removed;

    if (lock < 0)
        return 0;
    qn_cache_unique(key, name, sizeof name);
    removed = !renameat(folder->parts[QN_PART_ENTRIES], key,
                        folder->parts[QN_PART_NEW], name);
    if (removed && !qn_file_remove(folder->parts[QN_PART_NEW], name))
        unlinkat(folder->parts[QN_PART_NEW], name, 0);
    unlinkat(folder->parts[QN_PART_LOCK], key, 0);
    qn_cache_unlock(lock);
    return removed;
}

struct sweep {
    const struct qn_cache *cache;
    int folder;
    time_t before;
};

/* What was left in new/ or damaged/ by a process that is gone. */
static int remove_abandoned(void *user, const char *name)
{
    const struct sweep *sweep = user;
    struct stat st;

    if (!fstatat(sweep->folder, name, &st, AT_SYMLINK_NOFOLLOW) &&
        st.st_mtime < sweep->before && !qn_file_remove(sweep->folder, name))
        unlinkat(sweep->folder, name, 0);
    return 0;
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

/* An index whose entry is gone leads nowhere. */
static int remove_stale(void *user, const char *name)
{
    const struct sweep *sweep = user;
    struct qn_file_text text;

    if (qn_file_read(sweep->folder, name, QN_KEY_SIZE, QN_TRUST_ROOT, &text) !=
        QN_FILE_OK)
        return 0;
    text.data[strcspn(text.data, "\n")] = 0;
    if (!qn_cache_is_key(text.data) || !has_entry(sweep->cache, text.data))
        unlinkat(sweep->folder, name, 0);
    free(text.data);
    return 0;
}

/* What no entry needs: abandoned work, damage an hour old, dead indexes. */
static void sweep_rests(struct qn_cache *cache)
{
    const struct qn_cache_folder *folder = &cache->folders[cache->writable];
    struct sweep sweep = {.cache = cache, .before = time(NULL) - ABANDONED};

    sweep.folder = folder->parts[QN_PART_NEW];
    each_name(sweep.folder, remove_abandoned, &sweep);
    sweep.folder = folder->parts[QN_PART_DAMAGED];
    each_name(sweep.folder, remove_abandoned, &sweep);
    sweep.folder = folder->parts[QN_PART_INDEX];
    each_name(sweep.folder, remove_stale, &sweep);
}

int qn_cache_gc(struct qn_cache *cache, int64_t limit, struct qn_cache_gc *gc)
{
    struct list list = {.items = NULL};

    memset(gc, 0, sizeof *gc);
    if (cache->writable < 0)
        return QUERN_OK;
    qn_cache_each(cache, 0, collect, &list);
    if (list.count)
        qsort(list.items, list.count, sizeof *list.items, compare);
    for (size_t i = 0; i < list.count; i++)
        gc->kept_bytes += list.items[i].bytes;
    gc->kept = (int)list.count;
    for (size_t i = 0; i < list.count; i++) {
        const struct item *item = &list.items[i];

        if ((!item->damaged && gc->kept_bytes <= limit) ||
            !remove_entry(cache, item->key))
            continue;
        gc->removed++;
        gc->kept--;
        gc->removed_bytes += item->bytes;
        gc->kept_bytes -= item->bytes;
    }
    sweep_rests(cache);
    free(list.items);
    return list.failed ? qn_error_memory() : QUERN_OK;
}

/*
** cache_folder.h: what cache.c and cache_gc.c know of a cache's folders.
*/
#ifndef QUERN_CACHE_FOLDER_H
#define QUERN_CACHE_FOLDER_H

#include "cache.h"

#include <pthread.h>

/* The parts of a folder, each a folder of its own. */
enum {
    QN_PART_INDEX,
    QN_PART_ENTRIES,
    QN_PART_LOCK,
    QN_PART_NEW,
    QN_PART_DAMAGED,
    QN_PARTS
};

struct qn_cache_folder {
    char *path;
    int writable;
    int parts[QN_PARTS]; /* open; -1 where a read-only folder lacks one */
};

struct qn_cache {
    struct qn_cache_folder *folders;
    int nfolders;
    int listed;   /* folders were asked for, usable or not */
    int writable; /* position of the folder that takes new entries, or -1 */
    struct qn_cache_listener listener;
    pthread_mutex_t lock; /* guards `said` */
    unsigned said;        /* bit for each kind of trouble told already */
};

/* 1 for 64 lower-case hex digits. */
int qn_cache_is_key(const char *name);

/* A name that no other thread or process uses now. */
#define QN_NAME_SIZE (QN_KEY_SIZE + 96)
void qn_cache_unique(const char *key, char *name, size_t size);

/* Lock a key unless it is locked (`wait` unset); -1 if not. */
int qn_cache_try_lock(struct qn_cache *cache, const char *key, int wait);

#endif

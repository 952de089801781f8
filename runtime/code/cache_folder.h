/* SPDX-License-Identifier: Apache-2.0 */
/* cache_folder.h: a cache's folders, for cache.c and cache_gc.c. */
#pragma once

#include "code/cache.h"

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

extern const char *const qn_cache_parts[QN_PARTS]; /* their names */

struct qn_cache_folder {
    char *path;
    int writable;
    int parts[QN_PARTS]; /* open; -1 where a read-only folder lacks one */
    const char *faults[QN_PARTS]; /* why one is not used though it is there */
    const char *fault;            /* the same for all of it */
    const char *absent;           /* why it is not there; NULL if it is */
};

struct qn_cache {
    struct qn_cache_folder *folders;
    int nfolders;
    int listed;    /* folders were asked for, usable or not */
    int writable;  /* position of the folder that takes new entries, or -1 */
    int64_t limit; /* bytes that it may have */
    struct qn_cache_listener listener;
    pthread_mutex_t lock; /* guards `said` */
    unsigned said;        /* bit for each kind of trouble told already */
    unsigned stored;      /* entries that this process has kept */
};

/* 1 for 64 lower-case hex digits. */
int qn_cache_is_key(const char *name);

/* A name that no other thread or process uses now. */
#define QN_NAME_SIZE (QN_KEY_SIZE + 96)
void qn_cache_unique(const char *key, char *name, size_t size);

/* Lock a key unless it is locked: its descriptor, or one of these. */
enum {
    QN_LOCK_NONE = -1, /* there are no locks here */
    QN_LOCK_BUSY = -2
};
int qn_cache_try_lock(struct qn_cache *cache, const char *key);

/*
** An index is one line, of which every version keeps the first word and the
** last, a checksum over its name and all before:
**
**     2 KEY SHA256
*/
enum qn_index_state { QN_INDEX_BAD, QN_INDEX_GOOD, QN_INDEX_OTHER };
enum qn_index_state qn_cache_index_read(int folder, const char *index,
                                        char key[QN_KEY_SIZE]);

/* The checksum of an index's line, in hexadecimal digits. */
void qn_cache_sum(const char *index, const char *line, size_t length,
                  char sum[QN_KEY_SIZE]);

#define QN_INDEX_LIMIT 512 /* bytes of a line of the index */

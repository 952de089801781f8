/* SPDX-License-Identifier: Apache-2.0 */
/*
** entry.h: one entry of the cache, a folder with its files and their sums.
**
** `sums` is text, its last line the checksum of those before:
**
**     quern 2
**     key KEY                    the entry's own name: a copy under another
**     kernel NAME                name is damage
**     arch ARCH
**     compiler TEXT
**     source BYTES SHA256        likewise object and log
**     self SHA256
**
** Later versions keep the first and the last line, so that versions that share
** a folder leave each other's entries unchanged.
*/
#pragma once

#include "code/cache.h"

#include <time.h>

enum { QN_ENTRY_SOURCE, QN_ENTRY_OBJECT, QN_ENTRY_LOG, QN_ENTRY_FILES };

struct qn_entry {
    char kernel[256], arch[32], compiler[96];
    size_t bytes[QN_ENTRY_FILES];
    char sums[QN_ENTRY_FILES][QN_KEY_SIZE];
    int64_t used;      /* when it was last used, seconds since 1970 */
    const char *fault; /* the damage, for people */
};

enum qn_entry_state {
    QN_ENTRY_GOOD,
    QN_ENTRY_NONE,   /* no such entry, or it cannot be read now */
    QN_ENTRY_OTHER,  /* of another version of quern; `used`, `bytes` are set */
    QN_ENTRY_DAMAGED /* `fault` is set */
};

/* sha256 in hex. */
void qn_entry_sum(const void *data, size_t bytes, char sum[QN_KEY_SIZE]);

/* Write all files of the entry `key` into an open, empty folder. 1, or 0. */
int qn_entry_write(int folder, const char *key,
                   const struct qn_cache_item *item);

/* Read `sums` of the entry `key` in the open folder `entries`. */
enum qn_entry_state qn_entry_read(int entries, const char *key,
                                  struct qn_entry *entry);

/* Read the object too, and compare it with its sum. With `own`, files of root
   are not read either. */
enum qn_entry_state qn_entry_load(int entries, const char *key, int own,
                                  struct qn_cache_object *object);

/* qn_entry_read, and all files compared with their sums. */
enum qn_entry_state qn_entry_verify(int entries, const char *key,
                                    struct qn_entry *entry);

/* Note that it was used, to the hour. */
void qn_entry_touch(int entries, const char *key);

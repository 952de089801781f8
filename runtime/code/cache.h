/* SPDX-License-Identifier: Apache-2.0 */
/*
** cache.h: compiled kernels on disk.
**
** A cache is a list of folders. The first that may be written takes new
** entries; all are read. In each:
**
**   index/INDEX           the key of an entry, and a checksum over both names:
**                         a warm start needs neither generator nor compiler
**   entries/KEY/source    the compiled text
**   entries/KEY/object    the cubin, or a shared library for the host
**   entries/KEY/log       the compiler's output
**   entries/KEY/sums      kernel, compiler, sizes and checksums of the above
**   lock/KEY              one compile per key, across threads and processes
**   new/ damaged/         entries in the making; entries set aside
**
** INDEX and KEY are sha256 in hex. A symbolic link is followed only if it leads
** to a folder of the list and is the user's or root's. Files that others could
** have written are not read.
*/
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>

struct qn_cache;
struct quern_context;

#define QN_KEY_SIZE 65 /* 64 hex digits and a zero */

#define QN_CACHE_LIMIT ((int64_t)4 << 30) /* bytes, unless asked otherwise */

/* Hears of trouble with a folder, once for each kind. May be NULL. */
struct qn_cache_listener {
    void (*log)(void *user, int level, const char *line);
    void *user;
};

/* The environment's list of folders: $QUERN_CACHE, else $XDG_CACHE_HOME/quern,
   else ~/.cache/quern, else ":", which names none. Freed with free; NULL if
   memory ran out. */
char *qn_cache_default(void);

/* Open the folders in `list`, separated by ':'; NULL for the environment's.
   "" or no usable folder gives a cache that finds and keeps nothing.
   QUERN_ENOMEM. */
int qn_cache_open(const char *list, const struct qn_cache_listener *listener,
                  struct qn_cache **out);
/* The same to tell of its folders only: none is made, and the one that would
   take new entries counts as writable. */
int qn_cache_look(const char *list, struct qn_cache **out);
void qn_cache_close(struct qn_cache *cache);

/* The folders of the list, in order; NULL past the last. */
const char *qn_cache_folder(const struct qn_cache *cache, int i);

/* Why that folder, or a part of it, is not used; NULL if it is. */
const char *qn_cache_fault(const struct qn_cache *cache, int i);

/* 1 if nothing of that folder is used, since it cannot be trusted. */
int qn_cache_refused(const struct qn_cache *cache, int i);

/* A number of bytes, with K, M, G or T after it if they are 1024, .. of them;
   0 if it is none. */
int qn_cache_parse_size(const char *text, int64_t *bytes);

/* The position of the folder that takes new entries, or -1. */
int qn_cache_writable(const struct qn_cache *cache);

/* ------------------------------------------------------------- for the JIT */

struct qn_cache_object {
    void *data; /* freed with free */
    size_t bytes;
};

/* The key that `index` leads to, by the folders from that position on;
   returns where to go on if its entry is of no use, or 0 if there is no
   index. */
int qn_cache_index(struct qn_cache *cache, int from, const char *index,
                   char key[QN_KEY_SIZE]);

/* Remember it. A failure is no error: the next start is merely colder. */
void qn_cache_index_store(struct qn_cache *cache, const char *index,
                          const char *key);

/* 1 and a verified copy of the object; 0 if there is none. A damaged entry
   is set aside if `repair` is set, which only the holder of the lock may do.
   With `own`, only files of this user are read, not those of root. */
int qn_cache_load(struct qn_cache *cache, const char *key, int repair, int own,
                  struct qn_cache_object *object);

/* Wait for the lock of a key, at most two minutes. Without a writable folder,
   on a file system without locks and after that time there is none (-1): then
   compiles may happen twice, which costs time and nothing else. QN_LOCK_LATE
   if this thread's own time is up before that. */
#define QN_LOCK_LATE (-3)
int qn_cache_lock(struct qn_cache *cache, const char *key);
void qn_cache_unlock(int lock);

/* How long this thread waits for locks: until `end` of CLOCK_MONOTONIC, in
   seconds; 0: as long as others do. */
void qn_cache_wait_until(double end);
double qn_cache_wait_end(void);

/* The path of a folder for work in progress, from which abandoned files are
   removed after an hour; 0 without a writable folder. */
int qn_cache_work(const struct qn_cache *cache, char *path, size_t size);

/* The contents of an entry. The strings are one line each, except the first
   two. */
struct qn_cache_item {
    const char *source;
    const char *log;
    const void *object;
    size_t bytes;
    const char *kernel, *arch, *compiler;
};

/* Keep it; 0 if it could not be kept (said once to the listener). Entries
   that were not used for long make room once the limit is passed. */
int qn_cache_store(struct qn_cache *cache, const char *key,
                   const struct qn_cache_item *item);

/* ------------------------------------------------- for `quern cache`, tests */

struct qn_cache_entry {
    const char *folder;
    int writable;
    const char *key;
    char kernel[256], arch[32], compiler[96]; /* "" if damaged */
    int64_t bytes;                            /* of all files */
    int64_t used;                             /* seconds since 1970 */
    int damaged;       /* a checksum is wrong, or a file is missing */
    int other;         /* another version of quern's */
    const char *fault; /* the error; NULL if there is none */
};

/* Visit all entries until `visit` returns nonzero, and return that. With
   `verify` each file is read and compared with its checksum; without, only
   `sums` is. Also with `verify`, all other faults are visited, as damaged:
   folders that are not used, and indexes; then `key` is the name, from the
   folder down. */
int qn_cache_each(struct qn_cache *cache, int verify,
                  int (*visit)(void *user, const struct qn_cache_entry *),
                  void *user);

struct qn_cache_gc {
    int removed, kept;
    int64_t removed_bytes, kept_bytes;
};

/* Remove damaged and abandoned entries from the writable folder, then the
   least recently used ones until `limit` bytes are left. Without `verify` only
   damage of `sums` is seen. QUERN_ENOMEM. */
int qn_cache_gc(struct qn_cache *cache, int verify, int64_t limit,
                struct qn_cache_gc *);

/* Remove the entries for which `unwanted` returns nonzero likewise. Entries of
   other versions are asked about with their keys only. */
int qn_cache_remove(struct qn_cache *cache,
                    int (*unwanted)(void *user, const struct qn_cache_entry *),
                    void *user, struct qn_cache_gc *);

/* The context's cache, opened on first use. Errors of qn_cache_open. */
int qn_cache_of(struct quern_context *ctx, struct qn_cache **out);

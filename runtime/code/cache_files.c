/* SPDX-License-Identifier: Apache-2.0 */
/* cache_files.c: names, locks and the index below a folder of the cache. */
#define _GNU_SOURCE
#include "code/cache_folder.h"
#include "base/file.h"
#include "code/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

const char *const qn_cache_parts[QN_PARTS] = {"index", "entries", "lock", "new",
                                              "damaged"};

int qn_cache_is_key(const char *name)
{
    return strlen(name) == QN_KEY_SIZE - 1 &&
           strspn(name, "0123456789abcdef") == QN_KEY_SIZE - 1;
}

/* By chance; processes on other machines, and clocks, have no part in it. */
void qn_cache_unique(const char *key, char *name, size_t size)
{
    static atomic_uint serial;
    struct timespec now;
    uint64_t chance;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) != sizeof chance)
        chance = (uint64_t)now.tv_sec;
    snprintf(name, size, "%s.%ld.%u.%09ld.%016llx", key, (long)getpid(),
             atomic_fetch_add(&serial, 1), now.tv_nsec,
             (unsigned long long)chance);
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

/* One try. 0 if the file system has no locks. */
static int lock_file(int folder, const char *key)
{
    int file =
        openat(folder, key,
               O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    int failed, error;

    if (file < 0)
        return QN_LOCK_NONE;
    do
        failed = flock(file, LOCK_EX | LOCK_NB);
    while (failed && errno == EINTR);
    error = errno;
    if (!failed && still_there(folder, key, file))
        return file;
    close(file);
    return failed && error != EWOULDBLOCK ? QN_LOCK_NONE : QN_LOCK_BUSY;
}

int qn_cache_try_lock(struct qn_cache *cache, const char *key)
{
    if (cache->writable < 0)
        return QN_LOCK_NONE;
    return lock_file(cache->folders[cache->writable].parts[QN_PART_LOCK], key);
}

/* A child that was forked meanwhile has the descriptor too, so that closing it
   would not be enough. */
void qn_cache_unlock(int lock)
{
    if (lock < 0)
        return;
    flock(lock, LOCK_UN);
    close(lock);
}

/* ----------------------------------------------------------------- finding */

/* The sum of an index's name and the first `length` bytes of its line. */
void qn_cache_sum(const char *index, const char *line, size_t length,
                  char sum[QN_KEY_SIZE])
{
    char both[QN_KEY_SIZE + QN_INDEX_LIMIT];
    int used = snprintf(both, sizeof both, "%s %.*s", index, (int)length, line);

    qn_entry_sum(both, (size_t)used, sum);
}

/* The line's value; the line is changed. */
static enum qn_index_state judge_index(const char *index, char *line,
                                       size_t bytes, char key[QN_KEY_SIZE])
{
    char *last = memrchr(line, ' ', bytes), sum[QN_KEY_SIZE];

    if (!last || strlen(line) != bytes || line[bytes - 1] != '\n')
        return QN_INDEX_BAD;
    line[bytes - 1] = 0;
    qn_cache_sum(index, line, (size_t)(last - line), sum);
    if (strcmp(sum, last + 1) != 0)
        return QN_INDEX_BAD;
    *last = 0;
    if (strncmp(line, "2 ", 2) != 0)
        return QN_INDEX_OTHER;
    if (!qn_cache_is_key(line + 2))
        return QN_INDEX_BAD;
    memcpy(key, line + 2, QN_KEY_SIZE);
    return QN_INDEX_GOOD;
}

enum qn_index_state qn_cache_index_read(int folder, const char *index,
                                        char key[QN_KEY_SIZE])
{
    struct qn_file_text text;
    enum qn_index_state state;

    if (!qn_cache_is_key(index) ||
        qn_file_read(folder, index, QN_INDEX_LIMIT, QN_TRUST_ROOT, &text) !=
            QN_FILE_OK)
        return QN_INDEX_BAD;
    state = judge_index(index, text.data, text.bytes, key);
    free(text.data);
    return state;
}

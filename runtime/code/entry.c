/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c: one entry of the cache, a folder with its files and their sums. */
#define _GNU_SOURCE
#include "code/entry.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD         "quern 2\n"
#define SUMS_LIMIT   4096
#define OBJECT_LIMIT ((size_t)256 << 20)
#define HOUR         3600

static const char *const files[] = {"source", "object", "log"};

void qn_entry_sum(const void *data, size_t bytes, char sum[QN_KEY_SIZE])
{
    SHA256Data(data, bytes, sum);
}

/* ----------------------------------------------------------------- writing */

/* Text from elsewhere must stay on its line. */
static void add_line(char *sums, const char *name, const char *text, int most)
{
    size_t used = strlen(sums);
    int length = (int)strcspn(text, "\r\n");

    snprintf(sums + used, SUMS_LIMIT - used, "%s %.*s\n", name,
             length < most ? length : most, text);
}

/* Its size and checksum. */
static void add_file(char *sums, const char *name, const void *data,
                     size_t bytes)
{
    size_t used = strlen(sums);
    char sum[QN_KEY_SIZE];

    qn_entry_sum(data, bytes, sum);
    snprintf(sums + used, SUMS_LIMIT - used, "%s %zu %s\n", name, bytes, sum);
}

/* All lines in order; the last covers those before. */
static void make_sums(char *sums, const char *key,
                      const struct qn_cache_item *item)
{
    char self[QN_KEY_SIZE];
    size_t used;

    strcpy(sums, HEAD);
    add_line(sums, "key", key, QN_KEY_SIZE - 1);
    add_line(sums, "kernel", item->kernel, 255);
    add_line(sums, "arch", item->arch, 31);
    add_line(sums, "compiler", item->compiler, 95);
    add_file(sums, "source", item->source, strlen(item->source));
    add_file(sums, "object", item->object, item->bytes);
    add_file(sums, "log", item->log, strlen(item->log));
    used = strlen(sums);
    qn_entry_sum(sums, used, self);
    snprintf(sums + used, SUMS_LIMIT - used, "self %s\n", self);
}

int qn_entry_write(int folder, const char *key,
                   const struct qn_cache_item *item)
{
    char sums[SUMS_LIMIT];

    make_sums(sums, key, item);
    return qn_file_write(folder, "source", item->source,
                         strlen(item->source)) &&
           qn_file_write(folder, "object", item->object, item->bytes) &&
           qn_file_write(folder, "log", item->log, strlen(item->log)) &&
           qn_file_write(folder, "sums", sums, strlen(sums));
}

/* ----------------------------------------------------------------- reading */

/* The last line must be there whole and agree with all before it. */
static int self_agrees(const char *sums)
{
    const char *self = strstr(sums, "\nself ");
    char sum[QN_KEY_SIZE];

    if (!self)
        return 0;
    self++;
    qn_entry_sum(sums, (size_t)(self - sums), sum);
    return !strncmp(self + 5, sum, QN_KEY_SIZE - 1) &&
           !strcmp(self + 5 + QN_KEY_SIZE - 1, "\n");
}

/* Strict: a line too many or too few is damage. */
static int parse_sums(const char *sums, struct qn_entry *entry, char *key)
{
    int end = 0;

    if (sscanf(sums,
               HEAD "key %64s\nkernel %255s\narch %31s\ncompiler %95[^\n]\n%n",
               key, entry->kernel, entry->arch, entry->compiler, &end) != 4 ||
        !end)
        return 0;
    if (sscanf(sums + end,
               "source %zu %64s\nobject %zu %64s\nlog %zu %64s\nself",
               &entry->bytes[QN_ENTRY_SOURCE], entry->sums[QN_ENTRY_SOURCE],
               &entry->bytes[QN_ENTRY_OBJECT], entry->sums[QN_ENTRY_OBJECT],
               &entry->bytes[QN_ENTRY_LOG], entry->sums[QN_ENTRY_LOG]) != 6)
        return 0;
    for (int file = 0; file < QN_ENTRY_FILES; file++)
        if (entry->bytes[file] > OBJECT_LIMIT) /* sums must not overflow */
            return 0;
    return 1;
}

/* The line of `sums` for the entry `wanted`. */
static enum qn_entry_state judge_sums(const struct qn_file_text *text,
                                      const char *wanted,
                                      struct qn_entry *entry)
{
    char key[QN_KEY_SIZE] = "";

    entry->fault = "sums disagrees with itself";
    if (strlen(text->data) != text->bytes || !self_agrees(text->data))
        return QN_ENTRY_DAMAGED;
    if (!strncmp(text->data, "quern ", 6) &&
        strncmp(text->data, HEAD, strlen(HEAD)) != 0)
        return QN_ENTRY_OTHER;
    if (!parse_sums(text->data, entry, key))
        return QN_ENTRY_DAMAGED;
    entry->fault = "it is a copy of another entry";
    return strcmp(key, wanted) ? QN_ENTRY_DAMAGED : QN_ENTRY_GOOD;
}

/* The sizes of another version's entry are those of the shared files. */
static void measure(int folder, struct qn_entry *entry)
{
    struct stat st;

    for (int file = 0; file < QN_ENTRY_FILES; file++)
        if (!fstatat(folder, files[file], &st, AT_SYMLINK_NOFOLLOW) &&
            st.st_size > 0)
            entry->bytes[file] = (size_t)st.st_size;
}

/* The time of `sums` is that of the last use. */
static enum qn_entry_state read_sums(int folder, const char *key,
                                     struct qn_entry *entry)
{
    enum qn_file_result result;
    enum qn_entry_state state;
    struct qn_file_text text;
    struct stat st;

    entry->fault = "sums is missing, or cannot be trusted";
    result = qn_file_read(folder, "sums", SUMS_LIMIT, QN_TRUST_ROOT, &text);
    if (result != QN_FILE_OK)
        return result == QN_FILE_BUSY ? QN_ENTRY_NONE : QN_ENTRY_DAMAGED;
    state = judge_sums(&text, key, entry);
    free(text.data);
    if (fstatat(folder, "sums", &st, AT_SYMLINK_NOFOLLOW))
        return QN_ENTRY_DAMAGED;
    entry->used = (int64_t)st.st_mtime;
    if (state == QN_ENTRY_OTHER)
        measure(folder, entry);
    return state;
}

/* The whole file, only if it is the one that was summed. */
static enum qn_entry_state read_file(int folder, struct qn_entry *entry,
                                     int file, enum qn_file_trust trust,
                                     struct qn_file_text *text)
{
    static const char *const faults[] = {
        "source differs from the stored one, or cannot be trusted",
        "object differs from the stored one, or cannot be trusted",
        "log differs from the stored one, or cannot be trusted"};
    size_t limit = entry->bytes[file];
    enum qn_file_result result =
        qn_file_read(folder, files[file],
                     limit < OBJECT_LIMIT ? limit : OBJECT_LIMIT, trust, text);
    char sum[QN_KEY_SIZE];

    entry->fault = faults[file];
    if (result != QN_FILE_OK)
        return result == QN_FILE_BUSY ? QN_ENTRY_NONE : QN_ENTRY_DAMAGED;
    qn_entry_sum(text->data, text->bytes, sum);
    if (text->bytes == entry->bytes[file] && !strcmp(sum, entry->sums[file]))
        return QN_ENTRY_GOOD;
    free(text->data);
    text->data = NULL;
    return QN_ENTRY_DAMAGED;
}

/* A link, or a folder that others may write, is set aside like damage, and so
   is an unreadable entry. */
static enum qn_entry_state state_of_failure(int error, struct qn_entry *entry)
{
    entry->fault = error == EMLINK   ? "others may write to it"
                   : error == EPERM  ? "it is another user's"
                   : error == EACCES ? "it cannot be read"
                                     : "it is no folder";
    return error == ENOENT || qn_file_is_busy(error) ? QN_ENTRY_NONE
                                                     : QN_ENTRY_DAMAGED;
}

/* Open an entry and read its sums; -1 unless it is good so far. */
static int open_entry(int entries, const char *key, struct qn_entry *entry,
                      enum qn_entry_state *state)
{
    int folder = qn_file_folder(entries, key, 0);

    memset(entry, 0, sizeof *entry);
    *state = folder < 0 ? state_of_failure(errno, entry)
                        : read_sums(folder, key, entry);
    if (folder >= 0 && *state != QN_ENTRY_GOOD) {
        close(folder);
        folder = -1;
    }
    return folder;
}

enum qn_entry_state qn_entry_read(int entries, const char *key,
                                  struct qn_entry *entry)
{
    enum qn_entry_state state;
    int folder = open_entry(entries, key, entry, &state);

    if (folder >= 0)
        close(folder);
    return state;
}

enum qn_entry_state qn_entry_load(int entries, const char *key, int own,
                                  struct qn_cache_object *object)
{
    struct qn_file_text text = {NULL, 0};
    struct qn_entry entry;
    enum qn_entry_state state;
    int folder = open_entry(entries, key, &entry, &state);

    if (folder < 0)
        return state;
    state = read_file(folder, &entry, QN_ENTRY_OBJECT,
                      own ? QN_TRUST_OWN : QN_TRUST_ROOT, &text);
    object->data = text.data;
    object->bytes = text.bytes;
    close(folder);
    return state;
}

enum qn_entry_state qn_entry_verify(int entries, const char *key,
                                    struct qn_entry *entry)
{
    struct qn_file_text text;
    enum qn_entry_state state;
    int folder = open_entry(entries, key, entry, &state);

    for (int file = 0;
         folder >= 0 && state == QN_ENTRY_GOOD && file < QN_ENTRY_FILES;
         file++) {
        state = read_file(folder, entry, file, QN_TRUST_ROOT, &text);
        free(text.data);
    }
    if (folder >= 0)
        close(folder);
    return state;
}

/* A fast clock leaves future times; they are corrected as well. */
void qn_entry_touch(int entries, const char *key)
{
    int folder = qn_file_folder(entries, key, 0);
    const time_t now = time(NULL);
    struct stat st;

    if (folder < 0)
        return;
    if (!fstatat(folder, "sums", &st, AT_SYMLINK_NOFOLLOW) &&
        (now - st.st_mtime > HOUR || st.st_mtime > now))
        utimensat(folder, "sums", NULL, AT_SYMLINK_NOFOLLOW);
    close(folder);
}

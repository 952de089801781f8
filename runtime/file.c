/*
** file.c: files in folders that others may have tampered with.
*/
#define _GNU_SOURCE
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int qn_file_trusted(const struct stat *st, enum qn_file_trust trust)
{
    int ours =
        st->st_uid == geteuid() || (trust == QN_TRUST_ROOT && st->st_uid == 0);

    if (trust == QN_TRUST_ALL)
        return 1;
    return ours && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

int qn_file_folder(int at, const char *name, int create)
{
    struct stat st;
    int folder;

    if (create && mkdirat(at, name, 0700) && errno != EEXIST)
        return -1;
    folder = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return -1;
    if (fstat(folder, &st) || !qn_file_trusted(&st, QN_TRUST_ROOT)) {
        close(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

int qn_file_folders(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);

    if (length == 0 || length >= sizeof part)
        return 0;
    for (size_t i = 1; i <= length; i++)
        if (path[i] == '/' || path[i] == 0) {
            memcpy(part, path, i);
            part[i] = 0;
            if (mkdir(part, 0700) && errno != EEXIST && errno != EROFS &&
                errno != EACCES)
                return 0;
        }
    return access(path, F_OK) == 0;
}

/* Room for the file's bytes and a zero; NULL if it must not be read. */
static char *make_room(int file, size_t limit, enum qn_file_trust trust,
                       size_t *bytes)
{
    struct stat st;

    if (fstat(file, &st) || !S_ISREG(st.st_mode) ||
        !qn_file_trusted(&st, trust) || st.st_size < 0 ||
        (size_t)st.st_size > limit)
        return NULL;
    *bytes = (size_t)st.st_size;
    return malloc(*bytes + 1);
}

/* A file that shrinks meanwhile is an error. */
static int read_all(int file, char *data, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = read(file, data + done, bytes - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        done += (size_t)got;
    }
    data[bytes] = 0;
    return 1;
}

enum qn_file_result qn_file_read(int folder, const char *name, size_t limit,
                                 enum qn_file_trust trust,
                                 struct qn_file_text *text)
{
    /* O_NONBLOCK: a planted fifo must not hang us */
    int file =
        openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    text->data = NULL;
    text->bytes = 0;
    if (file < 0)
        return errno == ENOENT ? QN_FILE_MISSING : QN_FILE_BAD;
    text->data = make_room(file, limit, trust, &text->bytes);
    if (text->data && !read_all(file, text->data, text->bytes)) {
        free(text->data);
        text->data = NULL;
    }
    close(file);
    return text->data ? QN_FILE_OK : QN_FILE_BAD;
}

/* A full disk shows as a short or failed write. */
static int write_all(int file, const char *data, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t put = write(file, data + done, bytes - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return 0;
        done += (size_t)put;
    }
    return 1;
}

int qn_file_write(int folder, const char *name, const void *data, size_t bytes)
{
    int file =
        openat(folder, name,
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int written;

    if (file < 0)
        return 0;
    written = write_all(file, data, bytes);
    return close(file) == 0 && written;
}

int qn_file_remove(int at, const char *name)
{
    int folder =
        openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = folder < 0 ? NULL : fdopendir(folder);
    struct dirent *entry;

    if (!list) {
        if (folder >= 0)
            close(folder);
        return 0;
    }
    while ((entry = readdir(list)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(folder, entry->d_name, 0);
    closedir(list);
    return unlinkat(at, name, AT_REMOVEDIR) == 0;
}

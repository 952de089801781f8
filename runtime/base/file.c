/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: files in folders that others may have tampered with. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEEPEST 8 /* folders in each other that are removed */

static int is_trusted(const struct stat *st, enum qn_file_trust trust)
{
    int ours =
        st->st_uid == geteuid() || (trust == QN_TRUST_ROOT && st->st_uid == 0);

    if (trust == QN_TRUST_ALL)
        return 1;
    return ours && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* Of this user, or of root? */
static int is_ours(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

/* errno is EPERM if it is another user's, EMLINK if others may write to it. */
static int open_with(int at, const char *name, int follow)
{
    struct stat st = {.st_uid = (uid_t)-1}; /* nobody's, should fstat fail */
    int folder = openat(at, name, O_RDONLY | O_DIRECTORY | follow | O_CLOEXEC);

    if (folder < 0)
        return -1;
    if (fstat(folder, &st) || !is_trusted(&st, QN_TRUST_ROOT)) {
        close(folder);
        errno = is_ours(&st) ? EMLINK : EPERM;
        return -1;
    }
    return folder;
}

static int open_folder(int at, const char *name)
{
    return open_with(at, name, O_NOFOLLOW);
}

int qn_file_folder_linked(const char *path)
{
    struct stat st;

    /* a link says no more than where its owner wants files to be */
    return open_with(AT_FDCWD, path,
                     !lstat(path, &st) && S_ISLNK(st.st_mode) && is_ours(&st)
                         ? 0
                         : O_NOFOLLOW);
}

int qn_file_folder(int at, const char *name, int create)
{
    if (create && mkdirat(at, name, 0700) && errno != EEXIST)
        return -1;
    return open_folder(at, name);
}

int qn_file_folder_new(int at, const char *name)
{
    return mkdirat(at, name, 0700) ? -1 : open_folder(at, name);
}

char *qn_file_list(const char *list)
{
    char *here = getcwd(NULL, 0);
    /* a list cannot hold a name with ':', nor an unreachable one */
    const int named = here && *here == '/' && !strchr(here, ':');
    struct qn_text text = {0};

    for (const char *sign = "";; sign = ":", list++) {
        const size_t length = strcspn(list, ":");
        const int relative = named && length && *list != '/';

        qn_text_add(&text, "%s%s%s%.*s", sign, relative ? here : "",
                    relative ? "/" : "", (int)length, list);
        list += length;
        if (!*list)
            break;
    }
    free(here);
    return qn_text_take(&text);
}

int qn_file_folders(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);

    if (length == 0 || length >= sizeof part) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return 0;
    }
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

int qn_file_can_make(const char *path)
{
    char above[PATH_MAX];
    char *last;

    if (strlen(path) >= sizeof above)
        return 0;
    strcpy(above, path);
    do { /* up to the first that is there, and takes a new one */
        last = strrchr(above, '/');
        if (!last)
            strcpy(above, ".");
        else
            last[last == above] = 0;
    } while (last && last > above && access(above, F_OK));
    return !faccessat(AT_FDCWD, above, W_OK | X_OK, AT_EACCESS);
}

/* May the file be read at all? */
static int is_readable(int file, size_t limit, enum qn_file_trust trust,
                       size_t *bytes)
{
    struct stat st;

    if (fstat(file, &st) || !S_ISREG(st.st_mode) || !is_trusted(&st, trust) ||
        st.st_size < 0 || (size_t)st.st_size > limit)
        return 0;
    *bytes = (size_t)st.st_size;
    return 1;
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

/* With a zero after it. */
static enum qn_file_result read_open(int file, size_t limit,
                                     enum qn_file_trust trust,
                                     struct qn_file_text *text)
{
    if (!is_readable(file, limit, trust, &text->bytes))
        return QN_FILE_BAD;
    text->data = malloc(text->bytes + 1);
    if (!text->data)
        return QN_FILE_BUSY;
    if (read_all(file, text->data, text->bytes))
        return QN_FILE_OK;
    free(text->data);
    text->data = NULL;
    return QN_FILE_BAD;
}

int qn_file_is_busy(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM ||
           error == EINTR;
}

enum qn_file_result qn_file_read(int folder, const char *name, size_t limit,
                                 enum qn_file_trust trust,
                                 struct qn_file_text *text)
{
    /* O_NONBLOCK: a planted fifo must not hang us */
    int file =
        openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    enum qn_file_result result;

    text->data = NULL;
    text->bytes = 0;
    if (file < 0)
        return errno == ENOENT          ? QN_FILE_MISSING
               : qn_file_is_busy(errno) ? QN_FILE_BUSY
                                        : QN_FILE_BAD;
    result = read_open(file, limit, trust, text);
    close(file);
    return result;
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

/* Past it a write would end the program by SIGXFSZ. */
static int fits_limit(size_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return 1;
    errno = EFBIG;
    return 0;
}

int qn_file_write(int folder, const char *name, const void *data, size_t bytes)
{
    int file, written;

    if (!fits_limit(bytes))
        return 0;
    file = openat(folder, name,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return 0;
    written = write_all(file, data, bytes);
    return close(file) == 0 && written;
}

/* fchmodat follows links, hence the check before: in a folder of ours no
   other user can create one in between. */
void qn_file_unlock(int at, const char *name)
{
    struct stat st;

    if (!fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode) &&
        st.st_uid == geteuid() && (st.st_mode & 07777) != 0700)
        fchmodat(at, name, 0700, 0);
}

static int remove_below(int at, const char *name, int depth)
{
    DIR *list;
    struct dirent *entry;
    int folder;

    if (!unlinkat(at, name, 0))
        return 1;
    qn_file_unlock(at, name);
    folder = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    list = folder < 0 ? NULL : fdopendir(folder);
    if (!list) {
        if (folder >= 0)
            close(folder);
        return 0;
    }
    while (depth && (entry = readdir(list)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            remove_below(folder, entry->d_name, depth - 1);
    closedir(list);
    return unlinkat(at, name, AT_REMOVEDIR) == 0;
}

int qn_file_remove(int at, const char *name)
{
    return remove_below(at, name, DEEPEST);
}

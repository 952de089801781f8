/* SPDX-License-Identifier: Apache-2.0 */
/*
** output.c: files written as a whole, or not at all.
**
** Each goes to a name of its own first; only when all of them are on disk are
** they renamed. Nothing is allocated while a file is open, so nothing unwinds.
*/
#include "lua/base.h"
#include "write/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096 };

/* "dir/name", or the temporary name next to it; 0 if it is too long. */
static int join(char *path, const char *dir, const char *name,
                const char *suffix)
{
    int length = snprintf(path, MAX_PATH, "%s/%s%s%s", dir,
                          suffix[0] ? "." : "", name, suffix);

    if (length > 0 && length < MAX_PATH)
        return 1;
    errno = ENAMETOOLONG;
    return 0;
}

/* As mkdir -p; errno has the reason of a failure. */
static int make_folders(const char *dir)
{
    char path[MAX_PATH];

    if (snprintf(path, sizeof path, "%s", dir) >= MAX_PATH) {
        errno = ENAMETOOLONG;
        return 0;
    }
    for (char *at = path + (path[0] != 0); *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return 0;
        *at = '/';
    }
    return !mkdir(path, 0777) || errno == EEXIST;
}

/* Compared piece by piece: no memory is needed while the file is open. */
static int same_bytes(int fd, const char *text, size_t length)
{
    char part[4096];
    size_t done = 0;
    ssize_t n;

    while ((n = read(fd, part, sizeof part)) > 0) {
        if (done + (size_t)n > length ||
            memcmp(part, text + done, (size_t)n) != 0)
            return 0;
        done += (size_t)n;
    }
    return !n && done == length;
}

/* A file that stays the same keeps its time, so that nothing is compiled
   again. */
static int unchanged(const char *dir, const struct qg_output_file *file)
{
    char path[MAX_PATH];
    struct stat status;
    int fd, same = 0;

    if (!join(path, dir, file->name, ""))
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) &&
        (size_t)status.st_size == file->length)
        same = same_bytes(fd, file->text, file->length);
    close(fd);
    return same;
}

/* 0 and errno if the disk is full, say. */
static int write_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(fd, text, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        text += n;
        length -= (size_t)n;
    }
    return 1;
}

/* O_EXCL and O_NOFOLLOW: a link put there is not written through. */
static int write_beside(const char *dir, const struct qg_output_file *file)
{
    char path[MAX_PATH];
    int fd, fine, error;

    if (!join(path, dir, file->name, ".new"))
        return 0;
    unlink(path); /* of a run that was killed */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return 0;
    fine = write_all(fd, file->text, file->length);
    error = errno;
    if (close(fd) && fine) {
        fine = 0;
        error = errno;
    }
    if (!fine)
        unlink(path);
    errno = error;
    return fine;
}

static int rename_over(const char *dir, const struct qg_output_file *file)
{
    char from[MAX_PATH], to[MAX_PATH];

    return join(from, dir, file->name, ".new") &&
           join(to, dir, file->name, "") && !rename(from, to);
}

/* After a failure: no other files are left. */
static void remove_beside(const char *dir, struct qg_output_file *files,
                          int count)
{
    char path[MAX_PATH];

    for (int i = 0; i < count; i++)
        if (files[i].written && join(path, dir, files[i].name, ".new"))
            unlink(path);
}

/* The first file that could not be written, or -1; errno says why. */
static int write_files(const char *dir, struct qg_output_file *files, int count)
{
    for (int i = 0; i < count; i++) {
        if (unchanged(dir, &files[i]))
            continue;
        if (!write_beside(dir, &files[i]))
            return i;
        files[i].written = 1;
    }
    for (int i = 0; i < count; i++) {
        if (!files[i].written)
            continue;
        if (!rename_over(dir, &files[i]))
            return i;
        files[i].written = 0;
    }
    return -1;
}

int qg_output_write(struct qg *q, const char *dir, struct qg_output_file *files,
                    int count)
{
    const char *what = dir;
    int error, failed;

    if (make_folders(dir)) {
        failed = write_files(dir, files, count);
        if (failed < 0)
            return 0;
        error = errno;
        remove_beside(dir, files, count);
        what = qg_mem_print(q, "%s/%s", dir, files[failed].name);
        errno = error;
    }
    qg_diag_note(q, (struct qg_location){-1, 0}, QG_E_WRITE, what,
                 strerror(errno));
    return 1;
}

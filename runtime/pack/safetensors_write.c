/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c: files that come into being as a whole. */
#define _GNU_SOURCE
#include "pack/safetensors_write.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int unwritable(const char *path)
{
    return qn_error_set(QUERN_EINVAL, "%s: it cannot be written: %s", path,
                        strerror(errno));
}

/* The folder of a path, "." if it names none; NULL without memory. */
static char *folder_of(const char *path)
{
    char *folder = qn_text_copy(path);
    char *last = folder ? strrchr(folder, '/') : NULL;

    if (!last) {
        free(folder);
        return folder ? qn_text_copy(".") : NULL;
    }
    last[last == folder] = 0;
    return folder;
}

/* A file without a name disappears with this process; where file systems have
   none, one whose name begins with '.'. */
static int open_new(struct qn_safetensors_out *out, const char *folder)
{
    struct qn_text text = {0};

    out->file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (out->file >= 0)
        return QUERN_OK;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
        return unwritable(out->path);
    qn_text_add(&text, "%s/.quern-pack-XXXXXX", folder);
    out->temporary = qn_text_take(&text);
    if (!out->temporary)
        return qn_error_memory();
    out->file = mkostemp(out->temporary, O_CLOEXEC);
    if (out->file >= 0)
        return QUERN_OK;
    free(out->temporary);
    out->temporary = NULL;
    return unwritable(out->path);
}

static int write_at(const struct qn_safetensors_out *out, uint64_t at,
                    const void *buffer, size_t bytes)
{
    const char *from = buffer;

    while (bytes) {
        const ssize_t put = pwrite(out->file, from, bytes, (off_t)at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return unwritable(out->path);
        from += put;
        at += (uint64_t)put;
        bytes -= (size_t)put;
    }
    return QUERN_OK;
}

int qn_safetensors_write(const struct qn_safetensors_out *out, uint64_t at,
                         const void *buffer, size_t bytes)
{
    return write_at(out, out->data + at, buffer, bytes);
}

int qn_safetensors_create(struct qn_safetensors_out *out, const char *path,
                          const char *header, size_t header_bytes,
                          uint64_t data_bytes)
{
    unsigned char length[8];
    char *folder;
    int code;

    *out = (struct qn_safetensors_out){
        .path = qn_text_copy(path), .file = -1, .data = 8 + header_bytes};
    folder = folder_of(path);
    if (!out->path || !folder) {
        free(folder);
        return qn_error_memory();
    }
    code = open_new(out, folder);
    free(folder);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header_bytes >> 8 * i);
    if (!code && ftruncate(out->file, (off_t)(out->data + data_bytes)))
        code = unwritable(path);
    if (!code)
        code = write_at(out, 0, length, sizeof length);
    return code ? code : write_at(out, 8, header, header_bytes);
}

/* The same that link does for one with a name. */
static int give_name(const struct qn_safetensors_out *out)
{
    char self[64];

    if (out->temporary)
        return link(out->temporary, out->path);
    snprintf(self, sizeof self, "/proc/self/fd/%d", out->file);
    return linkat(AT_FDCWD, self, AT_FDCWD, out->path, AT_SYMLINK_FOLLOW);
}

int qn_safetensors_publish(struct qn_safetensors_out *out)
{
    mode_t mask;

    if (out->temporary) { /* which mkostemp made 0600 */
        umask(mask = umask(0));
        fchmod(out->file, 0666 & ~mask);
    }
    if (fsync(out->file) || give_name(out))
        return unwritable(out->path);
    out->published = 1;
    return QUERN_OK;
}

void qn_safetensors_withdraw(struct qn_safetensors_out *out)
{
    if (out->published)
        unlink(out->path);
    out->published = 0;
}

void qn_safetensors_discard(struct qn_safetensors_out *out)
{
    if (out->temporary)
        unlink(out->temporary);
    if (out->path && out->file >= 0)
        close(out->file);
    free(out->temporary);
    free(out->path);
    *out = (struct qn_safetensors_out){.file = -1};
}

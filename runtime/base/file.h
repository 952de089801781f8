/* SPDX-License-Identifier: Apache-2.0 */
/*
** file.h: files in folders that others may have tampered with.
**
** Folders are open descriptors and names have no slash, so nothing that is
** renamed meanwhile leads elsewhere, and no symbolic link is followed.
*/
#pragma once

#include "internal.h"

#include <stddef.h>
#include <sys/stat.h>

struct stat;

struct qn_file_text {
    char *data; /* freed with free; a zero follows */
    size_t bytes;
};

enum qn_file_result { QN_FILE_OK, QN_FILE_MISSING, QN_FILE_BAD, QN_FILE_BUSY };

/* The users who may have written a file. */
enum qn_file_trust {
    QN_TRUST_ALL,  /* anyone: the folder itself is closed to others */
    QN_TRUST_ROOT, /* we or root, and no other user may write */
    QN_TRUST_OWN   /* only we */
};

/* Open folder `name` in `at` (AT_FDCWD for a path), created 0700 if `create`;
   -1 if that fails or it is not trusted: then errno is EPERM if it is another
   user's, EMLINK if others may write to it. */
int qn_file_folder(int at, const char *name, int create);

/* Open a folder that is there, through a link if that is ours or root's. */
int qn_file_folder_linked(const char *path);

/* Open a folder that did not exist before, 0700; -1 if that fails. */
int qn_file_folder_new(int at, const char *name);

/* A list of folders, separated by ':', as it is named from everywhere: those
   that do not begin with '/' are below the working directory of now, where that
   has a name. Freed with free; NULL if memory ran out. */
char *qn_file_list(const char *list);

/* Create the folders above and at a path, 0700. 1, or 0. */
int qn_file_folders(const char *path);
/* Would that make a folder which is not there? */
int qn_file_can_make(const char *path);

/* Does this error number tell of the process, not of the file? */
int qn_file_is_busy(int error);

/* Read a whole file of at most `limit` bytes. MISSING: no such file. BAD: not
   trusted, no plain file, too large. BUSY: memory or descriptors ran out, which
   says nothing about the file. */
enum qn_file_result qn_file_read(int folder, const char *name, size_t limit,
                                 enum qn_file_trust trust,
                                 struct qn_file_text *text);

/* Write a new file, 0600; an existing one is not overwritten. 1, or 0. A limit
   on sizes (RLIMIT_FSIZE) is met with an error, not with its signal. */
int qn_file_write(int folder, const char *name, const void *data, size_t bytes);

/* Take back a folder of ours that we have no right to enter or move. */
void qn_file_unlock(int at, const char *name);

/* Remove a folder and its content, or a file; nothing is followed. 1, or 0:
   a part of it stays, as do folders more than a few deep. */
int qn_file_remove(int at, const char *name);

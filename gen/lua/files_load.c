/* SPDX-License-Identifier: Apache-2.0 */
/*
** files_load.c: reading the specs and templates.
**
** The embedded ones, or those that the caller hands over, and the specs in
** folders of the user's. Only embedded templates are used: they are
** code, and specs must not be able to add any.
*/
#include "embedded.h"
#include "lua/base.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One more input. The array moves, so no one keeps pointers into it. */
static int add(struct qg *q, enum qg_input_kind kind, const char *path,
               const char *name)
{
    if (q->nfiles == q->files_room) {
        int room = q->files_room ? 2 * q->files_room : 64;
        struct qg_input *files = qg_mem_array(q, (size_t)room, sizeof *files);

        if (q->nfiles)
            memcpy(files, q->files, (size_t)q->nfiles * sizeof *files);
        q->files = files;
        q->files_room = room;
    }
    q->files[q->nfiles] =
        (struct qg_input){.kind = kind, .path = path, .name = name, .text = ""};
    return q->nfiles++;
}

static int starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* A caller's file is copied: it need not live as long as the generator. */
static void add_given(struct qg *q, const struct qg_file *file, int proved)
{
    int is_spec = starts(file->path, "specs/");
    const char *path;
    int index;

    if (!is_spec && !starts(file->path, "templates/"))
        return;
    path = qg_mem_string(q, file->path, strlen(file->path));
    index = add(q, is_spec ? QG_SPEC : QG_TEMPLATE, path, path);
    q->files[index].text = qg_mem_string(q, file->text, file->length);
    q->files[index].length = file->length;
    q->files[index].proved = proved;
}

/* Names reach generated comments and messages: only plain ones are taken. */
static int plain_name(const char *name)
{
    size_t length = strlen(name);

    if (length < 5 || length > 100 || strcmp(name + length - 4, ".lua"))
        return 0;
    for (size_t i = 0; i < length - 4; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-", name[i]))
            return 0;
    return 1;
}

/* Read `size` bytes of an open file; 0, or errno. */
static int read_all(int fd, char *text, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = read(fd, text + done, size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? errno : EIO;
        done += (size_t)n;
    }
    return 0;
}

/* The file's text. Its size is taken first, so that nothing is allocated, and
   nothing can unwind, while it is open. */
static int read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    int error;

    if (fd < 0)
        return errno;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode))
        error = EINVAL;
    else if ((size_t)status.st_size != size)
        error = EAGAIN;
    else
        error = read_all(fd, text, size);
    close(fd);
    return error;
}

static const char *reason(int error)
{
    return error == EINVAL ? "it is a folder, a pipe or a device; a plain file "
                             "is expected"
                           : strerror(error);
}

/* A spec of the user's. It must be a plain file: a pipe could block for
   ever. */
static void add_file(struct qg *q, const char *path, const char *name)
{
    int index = add(q, QG_SPEC, path, name);
    struct qg_location location = {index, 0};
    struct stat status;
    char *text;
    int error = stat(path, &status) ? errno : 0;

    if (!error && !S_ISREG(status.st_mode))
        error = EINVAL;
    if (!error && status.st_size > QG_MAX_SPEC) {
        q->files[index].failed = 1;
        qg_diag_note(q, location, QG_E_FILE_SIZE, QG_MAX_SPEC,
                     (size_t)status.st_size);
        return;
    }
    if (!error) {
        text = qg_mem_new(q, (size_t)status.st_size + 1);
        error = read_file(path, text, (size_t)status.st_size);
        q->files[index].text = text;
        q->files[index].length = error ? 0 : (size_t)status.st_size;
        if (starts(text, "\xef\xbb\xbf")) { /* as some editors begin UTF-8 */
            q->files[index].text += 3;
            q->files[index].length -= 3;
        }
    }
    q->files[index].failed = error != 0;
    if (error)
        qg_diag_note(q, location, QG_E_OPEN, reason(error));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct names {
    const char **at;
    int count, room;
};

/* Copied: readdir's entry does not live long. */
static void add_name(struct qg *q, struct names *names, const char *name)
{
    if (names->count == names->room) {
        int room = names->room ? 2 * names->room : 32;
        const char **at = qg_mem_array(q, (size_t)room, sizeof *at);

        if (names->count)
            memcpy(at, names->at, (size_t)names->count * sizeof *at);
        names->at = at;
        names->room = room;
    }
    names->at[names->count++] = qg_mem_string(q, name, strlen(name));
}

/* Files that an editor leaves (.x.lua.swp) are not meant. */
static int is_lua(const char *name)
{
    size_t length = strlen(name);

    return name[0] != '.' && length > 4 && !strcmp(name + length - 4, ".lua");
}

/* The *.lua files of a folder, sorted; 0 where it cannot be opened. */
static int list(struct qg *q, const char *path, struct names *names)
{
    struct dirent *entry;

    q->folder = opendir(path);
    if (!q->folder)
        return 0;
    while ((entry = readdir(q->folder)))
        if (is_lua(entry->d_name))
            add_name(q, names, entry->d_name);
    closedir(q->folder);
    q->folder = NULL;
    if (names->count)
        qsort(names->at, (size_t)names->count, sizeof *names->at, by_name);
    return 1;
}

/* A part of a user's folder, e.g. its recipes/. Returns how many files. */
static int add_part(struct qg *q, const char *dir, const char *part)
{
    const char *folder = qg_mem_print(q, "%s/%s", dir, part);
    struct names names = {NULL, 0, 0};

    if (!list(q, folder, &names)) {
        if (errno != ENOENT)
            qg_diag_note(q,
                         (struct qg_location){add(q, QG_FOLDER, folder, ""), 0},
                         QG_E_OPEN, strerror(errno));
        return 0;
    }
    for (int i = 0; i < names.count; i++) {
        const char *path = qg_mem_print(q, "%s/%s", folder, names.at[i]);

        if (plain_name(names.at[i]))
            add_file(q, path, qg_mem_print(q, "DIR/%s/%s", part, names.at[i]));
        else
            qg_diag_note(q,
                         (struct qg_location){add(q, QG_FOLDER, path, ""), 0},
                         QG_E_FILE_NAME);
    }
    return names.count;
}

/* Specs next to the folders that are looked into: a slip, never silence. */
static int note_loose(struct qg *q, const char *dir)
{
    struct names names = {NULL, 0, 0};

    list(q, dir, &names);
    for (int i = 0; i < names.count; i++)
        qg_diag_note(q,
                     (struct qg_location){
                         add(q, QG_FOLDER,
                             qg_mem_print(q, "%s/%s", dir, names.at[i]), ""),
                         0},
                     QG_E_FILE_LOOSE);
    return names.count;
}

/* A folder laid out as specs/ is. */
static void add_folder(struct qg *q, const char *given)
{
    static const char *const parts[] = {"recipes", "layouts", "ragged",
                                        "kernels"};
    size_t length = strlen(given);
    struct qg_location location;
    const char *dir;
    struct stat status;
    int count = 0;

    while (length > 1 && given[length - 1] == '/')
        length--;
    dir = qg_mem_string(q, given, length);
    location = (struct qg_location){add(q, QG_FOLDER, dir, ""), 0};
    if (stat(dir, &status) || !S_ISDIR(status.st_mode)) {
        qg_diag_note(q, location, QG_E_OPEN,
                     strerror(access(dir, F_OK) ? errno : ENOTDIR));
        return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        count += add_part(q, dir, parts[i]);
    count += note_loose(q, dir);
    if (!count)
        qg_diag_note(q, location, QG_E_NO_SPECS);
}

/* Embedded ones, or the caller's, then the folders in their order. */
void qg_files_load(struct qg *q, const struct qg_options *options)
{
    const struct qg_file *files = options->files;
    int count = options->files_count;

    if (!files) {
        files = qg_embedded;
        count = qg_embedded_count;
    }
    for (int i = 0; i < count; i++)
        add_given(q, &files[i], !options->files);
    for (int i = 0; i < options->dirs_count; i++)
        add_folder(q, options->dirs[i]);
}

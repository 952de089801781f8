/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: files and folders for the tests. */
#include "test_gen.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The caller frees it. */
char *file_read(const char *path, size_t *length)
{
    FILE *in = fopen(path, "rb");
    char *text = NULL;
    long size;

    if (!in)
        return NULL;
    if (!fseek(in, 0, SEEK_END) && (size = ftell(in)) >= 0) {
        rewind(in);
        text = malloc((size_t)size + 1);
        assert_non_null(text);
        *length = fread(text, 1, (size_t)size, in);
        text[*length] = 0;
    }
    fclose(in);
    return text;
}

void file_write(const char *path, const char *text)
{
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    assert_int_equal(fclose(out), 0);
}

void files_put(struct files *files, const char *path, const char *text,
               size_t length)
{
    char *copy = malloc(length + 1);
    int i = 0;

    assert_non_null(copy);
    memcpy(copy, text, length);
    copy[length] = 0;
    while (i < files->count && strcmp(files->at[i].path, path))
        i++;
    assert_true(i < MAX_FILES);
    if (i < files->count)
        free((void *)files->at[i].text);
    else
        files->at[files->count++].path = strdup(path);
    files->at[i].text = copy;
    files->at[i].length = length;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* All files below a folder, with paths that begin with `prefix`. */
void files_read(struct files *files, const char *folder, const char *prefix)
{
    struct dirent **list;
    int count = scandir(folder, &list, NULL, by_name);

    for (int i = 0; i < count; i++) {
        char path[1024], name[1024];
        struct stat status;
        size_t length;
        char *text;

        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "/" : "",
                 list[i]->d_name);
        assert_int_equal(stat(path, &status), 0);
        if (list[i]->d_name[0] != '.' && S_ISDIR(status.st_mode)) {
            files_read(files, path, name);
        } else if (S_ISREG(status.st_mode)) {
            text = file_read(path, &length);
            assert_non_null(text);
            files_put(files, name, text, length);
            free(text);
        }
        free(list[i]);
    }
    if (count >= 0)
        free(list);
}

/* The array itself is the caller's. */
void files_free(struct files *files)
{
    for (int i = 0; i < files->count; i++) {
        free((void *)files->at[i].path);
        free((void *)files->at[i].text);
    }
    files->count = 0;
}

char *folder_make(char *path)
{
    strcpy(path, "/tmp/test_gen.XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

/* With all that is in it. */
void folder_remove(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char name[1024];

    while (dir && (entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (unlink(name))
            folder_remove(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

struct qg *open_files(const struct files *files)
{
    struct qg_options options = {.files = files->at,
                                 .files_count = files->count};
    struct qg *q;
    int failed = qg_open_with(&options, &q);

    assert_non_null(q);
    assert_int_equal(failed, qg_diagnostics(q)[0] != 0);
    return q;
}

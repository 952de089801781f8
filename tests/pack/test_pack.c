/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_pack.c: files of tensors, read, packed and written again; those that are
** damaged, and memory that runs out.
**
** Run: build/bin/test_pack [TEST]      one test's name, or a pattern
*/
#define _GNU_SOURCE
#include "test_pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char folder[64];
int pack_named_only;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    if (pack_named_only && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open(path, flags, 0666);
}

int pack_folder_make(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/quern-test-pack-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int pack_folder_remove(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

const char *pack_path(const char *name)
{
    static char paths[4][256];
    static int at;

    snprintf(paths[at = (at + 1) % 4], sizeof paths[0], "%s/%s", folder, name);
    return paths[at];
}

int pack_count(const char *name)
{
    DIR *files = opendir(pack_path(name));
    int count = 0;

    if (!files)
        return -1;
    for (struct dirent *entry; (entry = readdir(files));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(files);
    return count;
}

void pack_remove(const char *name)
{
    const int at = open(pack_path(name), O_RDONLY | O_DIRECTORY);
    DIR *files = fdopendir(at);

    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            assert_int_equal(unlinkat(at, entry->d_name, 0), 0);
    closedir(files);
    assert_int_equal(rmdir(pack_path(name)), 0);
}

void pack_bytes(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(pack_path(name), "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

void pack_file(const char *name, const char *header, size_t data_bytes)
{
    const size_t length = strlen(header);
    unsigned char *bytes = calloc(8 + length + data_bytes, 1);

    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)(1 + i % 127);
    pack_bytes(name, bytes, 8 + length + data_bytes);
    free(bytes);
}

char *pack_read(const char *name, size_t *count)
{
    FILE *file = fopen(pack_path(name), "rb");
    char *bytes = malloc(1 << 20);

    assert_non_null(file);
    assert_non_null(bytes);
    *count = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

TEST_MAIN("pack", NULL, NULL)

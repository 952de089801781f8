/* SPDX-License-Identifier: Apache-2.0 */
/*
** cache.c: an entry of the cache as another process left it.
**
** An input is the entry's `sums`, then after a line "%%" its object, then after
** another an index. The last line of `sums` is replaced by a correct checksum
** of all before it: else nothing but the checksum would be tested.
*/
#define _GNU_SOURCE
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "code/cache.h"
#include "code/cache_folder.h"
#include "code/entry.h"
#include "internal.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The part before the next line "%%"; `*text` goes after it. */
static size_t next_part(const char **text, size_t *left, const char **part)
{
    static const char line[] = "\n%%\n";
    const char *end = memmem(*text, *left, line, 4);
    size_t length = end ? (size_t)(end - *text) + 1 : *left;

    *part = *text;
    *text += end ? length + 3 : length;
    *left -= end ? length + 3 : length;
    return length;
}

/* With its last line made right. */
static void write_sums(const char *text, size_t length)
{
    char sums[FUZZ_MOST + 128], self[QN_KEY_SIZE];
    const char *end = memmem(text, length, "\nself ", 6);

    if (end)
        length = (size_t)(end - text) + 1;
    memcpy(sums, text, length);
    qn_entry_sum(sums, length, self);
    length += (size_t)sprintf(sums + length, "self %s\n", self);
    fuzz_file("cache/entries/" KEY "/sums", sums, length);
}

/* The printed parts of an entry are terminated texts. */
static int show(void *user, const struct qn_cache_entry *entry)
{
    (void)user;
    FUZZ_HOLDS(memchr(entry->kernel, 0, sizeof entry->kernel));
    FUZZ_HOLDS(memchr(entry->arch, 0, sizeof entry->arch));
    FUZZ_HOLDS(memchr(entry->compiler, 0, sizeof entry->compiler));
    FUZZ_HOLDS(entry->bytes >= 0);
    return 0;
}

void fuzz_cache(const char *text, size_t length)
{
    static const char *const folders[] = {
        "",      "/entries", ("/entries/" KEY), "/index",
        "/lock", "/new",     "/damaged"};
    struct qn_cache_object object = {NULL, 0};
    struct qn_cache_gc gone;
    struct qn_cache *cache;
    const char *part;
    char path[512], key[QN_KEY_SIZE];
    size_t size;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/cache%s", fuzz_folder(), folders[i]);
        mkdir(path, 0700);
    }
    size = next_part(&text, &length, &part);
    write_sums(part, size);
    size = next_part(&text, &length, &part);
    fuzz_file("cache/entries/" KEY "/object", part, size);
    size = next_part(&text, &length, &part);
    fuzz_file("cache/index/" KEY, part, size);
    fuzz_file("cache/entries/" KEY "/source", "s", 1);
    fuzz_file("cache/entries/" KEY "/log", "", 0);
    snprintf(path, sizeof path, "%s/cache", fuzz_folder());
    FUZZ_HOLDS(qn_cache_open(path, NULL, &cache) == QUERN_OK);
    if (qn_cache_index(cache, 0, KEY, key))
        FUZZ_HOLDS(strlen(key) == QN_KEY_SIZE - 1);
    qn_cache_each(cache, 1, show, NULL);
    if (qn_cache_load(cache, KEY, 1, 0, &object))
        FUZZ_HOLDS(object.data);
    free(object.data);
    FUZZ_HOLDS(qn_cache_gc(cache, 1, 1000, &gone) == QUERN_OK);
    qn_cache_close(cache);
}

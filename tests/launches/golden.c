/* SPDX-License-Identifier: Apache-2.0 */
/*
** golden.c: texts of paragraphs against files that were accepted.
*/
#define _GNU_SOURCE
#include "golden.h"
#include "log.h"

#include <stdlib.h>

#define GOLDEN "tests/launches/golden/"

enum { SHOWN = 12 }; /* differences */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t size;

    if (!file)
        return NULL;
    if (getdelim(&text, &size, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

void golden_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");

    if (!file)
        fail_msg("%s cannot be written", path);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A paragraph's end. */
static size_t paragraph(const char *text)
{
    const char *end = strstr(text + (*text == '\n'), "\n\n");

    return end ? (size_t)(end + 1 - text) : strlen(text);
}

/* A paragraph's first line that differs; its first line says what it is of. */
static void show(const char *path, const char *made, const char *kept)
{
    size_t length = strcspn(made += *made == '\n', "\n");

    print_error("%s: %.*s\n", path, (int)length, made);
    kept += *kept == '\n';
    while (*made && !strncmp(made, kept, strcspn(made, "\n") + 1)) {
        made += strcspn(made, "\n") + 1;
        kept += strcspn(kept, "\n") + 1;
    }
    print_error("  is  %.*s\n", (int)strcspn(made, "\n"), made);
    print_error("  was %.*s\n", (int)strcspn(kept, "\n"), kept);
}

/* Paragraphs are lines that were played, in the same order; 1 if they
   differ. */
static int differs(const char *path, const char *made, const char *kept)
{
    int count = 0;

    while (*made && *kept) {
        size_t length = paragraph(made), other = paragraph(kept);

        if ((length != other || strncmp(made, kept, length) != 0) &&
            count++ < SHOWN)
            show(path, made, kept);
        made += length, kept += other;
    }
    if (*made || *kept)
        print_error("%s: %s\n", path, *made ? "is longer" : "is shorter");
    if (count)
        print_error("%s: %d paragraphs differ\n", path, count);
    return count || *made || *kept;
}

int golden_check(const char *name, const char *made)
{
    char path[128], *kept;
    int result;

    snprintf(path, sizeof path, GOLDEN "%s", name);
    if (getenv("QUERN_ACCEPT"))
        golden_write(path, made);
    kept = read_file(path);
    if (!kept)
        fail_msg("%s is missing: make golden", path);
    result = differs(path, made, kept);
    free(kept);
    return result;
}

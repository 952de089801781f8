/* SPDX-License-Identifier: Apache-2.0 */
/* selects.c: which kernels a command means. */
#include "qg.h"

#include <fnmatch.h>
#include <string.h>

/* A pattern if it looks like one, of the whole name or of the text after the
   "quern_" of each; else a part of the name. */
static int matches(const char *filter, const char *name)
{
    static const char every[] = "quern_";
    const size_t length = sizeof every - 1,
                 skip = strncmp(name, every, length) ? 0 : length;

    if (strpbrk(filter, "*?["))
        return !fnmatch(filter, name, 0) || !fnmatch(filter, name + skip, 0);
    return strstr(name, filter) != NULL;
}

static int equals(const char *word, const char *name)
{
    return strcmp(word, name) == 0;
}

/* Does one of the list's words, between commas, hold for the name? No list
   holds for all; a word longer than any name holds for none. */
static int any(const char *list, int (*holds)(const char *, const char *),
               const char *name)
{
    char word[512];
    size_t length;

    if (!list || !list[0])
        return 1;
    for (; *list; list += length + (list[length] == ',')) {
        length = strcspn(list, ",");
        if (!length || length >= sizeof word)
            continue;
        memcpy(word, list, length);
        word[length] = 0;
        if (holds(word, name))
            return 1;
    }
    return 0;
}

int qg_selects(const struct qg_selection *selection,
               const struct qn_kernel *kernel)
{
    if (!selection)
        return 1;
    if (selection->shipped && !kernel->shipped)
        return 0;
    if (selection->takes && !selection->takes(selection->user, kernel))
        return 0;
    return any(selection->arch, equals, kernel->arch) &&
           any(selection->filter, matches, kernel->name);
}

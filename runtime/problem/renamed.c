/* SPDX-License-Identifier: Apache-2.0 */
/* renamed.c: words of problem lines that have another name now. */
#include "problem/problem.h"
#include "internal.h"
#include "base/error.h"

#include <stddef.h>
#include <string.h>

static const char removed[] = "streamed"; /* `now` is not the same */

/* Without a key: the first word of a line. Without an old value: the key. */
static const struct row {
    const char *key, *old, *now;
} renamed[] = {
    {"", "requantize", "transpose"},    {"parts", NULL, "microbatches"},
    {"expand", NULL, "dequantize"},     {"expand", "inside", "mainloop"},
    {"expand", "ahead", "pass"},        {"dequantize", "inside", "mainloop"},
    {"dequantize", "ahead", "pass"},    {"quantize", "apart", "pass"},
    {"quantize", "inline", "mainloop"}, {"quantize", "any", "auto"},
    {"quantize", removed, "auto"},      {"copies", "row", "rowwise"},
    {"copies", "column", "columnwise"},
};

enum { COUNT = sizeof renamed / sizeof renamed[0] };

/* The new name of a key, or of a value of that key; NULL: it has kept its
   name. */
static const struct row *find(const char *key, const char *old)
{
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(renamed[i].key, key) &&
            (old ? renamed[i].old && !strcmp(renamed[i].old, old)
                 : !renamed[i].old))
            return &renamed[i];
    return NULL;
}

int qn_renamed_check(const char *key, const char *value)
{
    const struct row *k = find(key, NULL), *v = find(key, value);

    if (!k && !v)
        return QUERN_OK;
    if (!*key)
        return qn_error_set(QUERN_EINVAL, "%s is called %s now", value, v->now);
    if (!v)
        return qn_error_set(QUERN_EINVAL, "%s= is called %s= now", key, k->now);
    return qn_error_set(QUERN_EINVAL,
                        v->old == removed ? "%s=%s was removed: write %s=%s"
                                          : "%s=%s is called %s=%s now",
                        key, value, k ? k->now : key, v->now);
}

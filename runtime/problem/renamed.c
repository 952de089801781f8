/* SPDX-License-Identifier: Apache-2.0 */
/*
** renamed.c: words of problem lines that have another name now.
*/
#include "problem/renamed.h"
#include "internal.h"
#include "base/error.h"

#include <stddef.h>
#include <string.h>

/* Without a key: the first word of a line. Without an old value: the key. */
static const struct {
    const char *key, *old, *now;
} renamed[] = {
    {"", "requantize", "transpose"},    {"parts", NULL, "microbatches"},
    {"expand", NULL, "dequantize"},     {"expand", "inside", "mainloop"},
    {"expand", "ahead", "pass"},        {"dequantize", "inside", "mainloop"},
    {"dequantize", "ahead", "pass"},    {"quantize", "apart", "pass"},
    {"quantize", "inline", "mainloop"}, {"quantize", "any", "auto"},
    {"copies", "row", "rowwise"},       {"copies", "column", "columnwise"},
};

enum { COUNT = sizeof renamed / sizeof renamed[0] };

/* The new name of a key, or of a value of that key; NULL: it has kept its. */
static const char *find(const char *key, const char *old)
{
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(renamed[i].key, key) &&
            (old ? renamed[i].old && !strcmp(renamed[i].old, old)
                 : !renamed[i].old))
            return renamed[i].now;
    return NULL;
}

int qn_renamed_check(const char *key, const char *value)
{
    const char *new_key = find(key, NULL), *new_value = find(key, value);

    if (!new_key && !new_value)
        return QUERN_OK;
    if (!*key)
        return qn_error_set(QUERN_EINVAL, "%s is called %s now", value,
                            new_value);
    if (!new_value)
        return qn_error_set(QUERN_EINVAL, "%s= is called %s= now", key,
                            new_key);
    return qn_error_set(QUERN_EINVAL, "%s=%s is called %s=%s now", key, value,
                        new_key ? new_key : key, new_value);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* error.c: one message for each thread, in a buffer of fixed size, so that
   reporting an error never needs memory. */
#include "base/error.h"
#include "base/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 8192

static _Thread_local char message[MESSAGE_BYTES];

/* Print at `at`; a cut message ends in "...". */
static void print_at(size_t at, const char *format, va_list list)
{
    size_t room = MESSAGE_BYTES - at;
    int need = vsnprintf(message + at, room, format, list);

    if (need >= 0 && (size_t)need >= room)
        memcpy(message + MESSAGE_BYTES - 4, "...", 4);
}

int qn_error_set(int code, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    print_at(0, format, list);
    va_end(list);
    return code;
}

void qn_error_add(const char *format, ...)
{
    size_t length = strlen(message);
    va_list list;

    if (length + 2 >= MESSAGE_BYTES)
        return;
    if (length)
        message[length++] = '\n';
    va_start(list, format);
    print_at(length, format, list);
    va_end(list);
}

const char *qn_error_text(void)
{
    return message;
}

int qn_error_null(const char *name, const void *argument, const char *second,
                  const void *other, const char *third)
{
    return qn_error_set(QUERN_EINVAL, "%s is NULL",
                        !argument ? name
                        : !other  ? second
                                  : third);
}

int qn_error_done(int code)
{
    if (code == QUERN_OK)
        message[0] = 0;
    return code;
}

int qn_error_memory(void)
{
    return qn_error_set(QUERN_ENOMEM, "host memory ran out");
}

const char *quern_strerror(int code)
{
    static const char *const meanings[] = {
#define MEANING(name, value, meaning) [value] = meaning,
        QUERN_ERRORS(MEANING)
#undef MEANING
    };

    if (code < 0 || code >= QUERN_STATUS_COUNT)
        return "unknown code";
    return meanings[code];
}

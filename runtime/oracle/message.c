/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: errors as a good compiler prints them: the argument, the rule, the
   nearest right word. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "oracle/message.h"
#include "base/guess.h"

int qn_message_fail(const struct qn_options *options, int status,
                    const char *format, ...)
{
    va_list list;

    fprintf(stderr, "quern %s: error: ", options->command);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    return status;
}

/* The exit status that a code of the library amounts to. */
static int status_of(int code)
{
    switch (code) {
    case QUERN_OK:
        return QN_EXIT_OK;
    case QUERN_EINVAL:
    case QUERN_ENOKERNEL:
    case QUERN_ECOMPILE:
        return QN_EXIT_USAGE;
    case QUERN_ESIZES:
        return QN_EXIT_FAILED;
    }
    return QN_EXIT_UNABLE;
}

/* The generator's messages have the form already, with file and line. */
static int is_diagnostic(const char *text)
{
    const char *end = text + strcspn(text, "\n");
    const char *error = strstr(text, "error: ");

    return *end && error && error < end &&
           (error == text || (error > text + 1 && error[-2] == ':'));
}

int qn_message_code(const struct qn_options *options, int code,
                    const char *detail)
{
    if (detail && is_diagnostic(detail)) {
        fputs(detail, stderr);
        if (detail[strlen(detail) - 1] != '\n')
            fputc('\n', stderr); /* it was cut */
        return status_of(code);
    }
    return qn_message_fail(options, status_of(code), "%s",
                           detail && *detail ? detail : qn_strerror(code));
}

const char *qn_message_nearest(const char *word, const char *const *words)
{
    struct qn_guess guess = {.word = word};

    for (; *words; words++)
        qn_guess_try(&guess, *words);
    return guess.best;
}

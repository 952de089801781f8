/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: errors as a good compiler prints them: the argument, the rule, the
   nearest right word. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/message.h"
#include "base/guess.h"
#include "base/text.h"

/* A string of JSON; bytes that are no UTF-8 become "?". */
static void print_string(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + size;

    fputc('"', stderr);
    while (at < end) {
        const int length = qn_text_character(at);

        if (*at == '"' || *at == '\\')
            fprintf(stderr, "\\%c", *at);
        else if (*at == '\n')
            fputs("\\n", stderr);
        else if (*at < ' ')
            fprintf(stderr, "\\u%04x", *at);
        else if (length)
            fprintf(stderr, "%.*s", length, (const char *)at);
        else
            fputc('?', stderr);
        at += length ? length : 1;
    }
    fputc('"', stderr);
}

/* Names in others' files may hold anything: characters that would steer a
   terminal become '?'. Messages have several lines, and tabs of source. */
static void print_tame(const char *text)
{
    while (*text) {
        const unsigned char *at = (const unsigned char *)text;
        int length = qn_text_character(at);

        if (*at != '\n' && *at != '\t' && qn_text_steers(at))
            fputc('?', stderr);
        else
            fprintf(stderr, "%.*s", length, text);
        text += length ? length : 1;
    }
}

int qn_message_text(const struct qn_options *options, int status,
                    const char *begin, const char *text)
{
    static const char word[] = "error: ";
    size_t length = strlen(text);

    if (!options->json) {
        fputs(begin, stderr);
        print_tame(text);
        if (!length || text[length - 1] != '\n')
            fputc('\n', stderr);
        return status;
    }
    if (strncmp(text, word, strlen(word)) == 0) { /* of the generator */
        text += strlen(word);
        length -= strlen(word);
    }
    while (length && text[length - 1] == '\n')
        length--;
    fprintf(stderr, "{\"command\": ");
    print_string(options->command, strlen(options->command));
    fprintf(stderr, ", \"status\": %d, \"error\": ", status);
    print_string(text, length);
    fputs("}\n", stderr);
    return status;
}

int qn_message_fail(const struct qn_options *options, int status,
                    const char *format, ...)
{
    char begin[64], *text;
    va_list list;
    int length;

    snprintf(begin, sizeof begin, "quern %s: error: ", options->command);
    va_start(list, format);
    length = vasprintf(&text, format, list);
    va_end(list);
    qn_message_text(options, status, begin, length < 0 ? format : text);
    if (length >= 0)
        free(text);
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
    if (detail && is_diagnostic(detail))
        return qn_message_text(options, status_of(code), "", detail);
    return qn_message_fail(options, status_of(code), "%s",
                           detail && *detail ? detail : quern_strerror(code));
}

const char *qn_message_nearest(const char *word, const char *const *words)
{
    struct qn_guess guess = {.word = word};

    for (; *words; words++)
        qn_guess_try(&guess, *words);
    return guess.best;
}

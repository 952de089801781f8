/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: strings that grow. */

#include "base/text.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` characters and the terminating zero. */
static int reserve(struct qn_text *text, size_t more)
{
    size_t need = text->length + more + 1;
    size_t capacity = text->capacity ? text->capacity : 256;
    char *data;

    if (text->failed)
        return 0;
    if (need <= text->capacity)
        return 1;
    while (capacity < need)
        capacity *= 2;
    data = realloc(text->data, capacity);
    if (!data) {
        text->failed = 1;
        return 0;
    }
    text->data = data;
    text->capacity = capacity;
    return 1;
}

void qn_text_add(struct qn_text *text, const char *format, ...)
{
    va_list list;
    int need;

    va_start(list, format);
    need = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (need < 0 || !reserve(text, (size_t)need))
        return;
    va_start(list, format);
    vsnprintf(text->data + text->length, (size_t)need + 1, format, list);
    va_end(list);
    text->length += (size_t)need;
}

char *qn_text_take(struct qn_text *text)
{
    char *data;

    qn_text_add(text, "%s", "");
    if (text->failed) {
        qn_text_free(text);
        return NULL;
    }
    data = text->data;
    memset(text, 0, sizeof *text);
    return data;
}

void qn_text_free(struct qn_text *text)
{
    free(text->data);
    memset(text, 0, sizeof *text);
}

char *qn_text_copy(const char *string)
{
    size_t bytes;
    char *copy;

    if (!string)
        return NULL;
    bytes = strlen(string) + 1;
    copy = malloc(bytes);
    return copy ? memcpy(copy, string, bytes) : NULL;
}

#define MOST_DIGITS 18

const char *qn_text_number(const char *text, int64_t *value)
{
    int digits = 0;

    *value = 0;
    while (isdigit((unsigned char)text[digits]) && digits <= MOST_DIGITS)
        digits++;
    if (digits == 0 || digits > MOST_DIGITS)
        return NULL;
    for (int i = 0; i < digits; i++)
        *value = *value * 10 + (text[i] - '0');
    return text + digits;
}

int qn_text_character(const unsigned char *at)
{
    int more = *at < 0x80   ? 0
               : *at < 0xC2 ? -1
               : *at < 0xE0 ? 1
               : *at < 0xF0 ? 2
               : *at < 0xF5 ? 3
                            : -1;

    for (int i = 1; i <= more; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if ((*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] > 0x9F) ||
        (*at == 0xF0 && at[1] < 0x90) || (*at == 0xF4 && at[1] > 0x8F))
        return 0;
    return more + 1;
}

int qn_text_steers(const unsigned char *at)
{
    return !qn_text_character(at) || *at < 0x20 || *at == 0x7f ||
           (*at == 0xC2 && at[1] < 0xA0);
}

int qn_text_valid(const char *string)
{
    const unsigned char *at = (const unsigned char *)string;

    while (*at) {
        const int length = qn_text_character(at);

        if (!length)
            return 0;
        at += length;
    }
    return 1;
}

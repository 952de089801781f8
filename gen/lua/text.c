/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: text that grows. */
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

void qg_text_clear(struct qg_text *text)
{
    text->length = 0;
    if (text->data)
        text->data[0] = 0;
}

/* Room for `more` bytes and the final NUL; unwinds if there is none. */
static void reserve(struct qg *q, struct qg_text *text, size_t more)
{
    size_t size = text->size ? text->size : 4096;
    char *data;

    if (text->length + more + 1 <= text->size)
        return;
    while (size < text->length + more + 1)
        size *= 2;
    data = q->resize(q->user, text->data, size);
    if (!data) {
        q->fault = QG_NO_MEMORY;
        lua_settop(q->L, 0);
        lua_pushnil(q->L);
        lua_error(q->L);
    }
    text->data = data;
    text->size = size;
}

void qg_text_add(struct qg *q, struct qg_text *text, const char *part,
                 size_t length)
{
    reserve(q, text, length);
    memcpy(text->data + text->length, part, length);
    text->length += length;
    text->data[text->length] = 0;
}

void qg_text_put(struct qg *q, struct qg_text *text, const char *part)
{
    qg_text_add(q, text, part, strlen(part));
}

void qg_text_vprint(struct qg *q, struct qg_text *text, const char *format,
                    va_list list)
{
    va_list again;
    int length;

    va_copy(again, list);
    length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    reserve(q, text, (size_t)length);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, list);
    text->length += (size_t)length;
}

void qg_text_print(struct qg *q, struct qg_text *text, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    qg_text_vprint(q, text, format, list);
    va_end(list);
}

/* As a C string: any bytes stay inside the quotes. */
void qg_text_quote(struct qg *q, struct qg_text *text, const char *part)
{
    qg_text_put(q, text, "\"");
    for (const char *at = part; *at; at++) {
        unsigned char c = (unsigned char)*at;

        if (c == '"' || c == '\\')
            qg_text_print(q, text, "\\%c", c);
        else if (c < 32 || c > 126 || c == '?') /* '?': no trigraphs */
            qg_text_print(q, text, "\\%03o", c);
        else
            qg_text_add(q, text, at, 1);
    }
    qg_text_put(q, text, "\"");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** diag.c: errors as text.
**
**     specs/recipes/x.lua:3: error: recipe 'x' has no field 'acum'; did ...
**         acum = f32,
**
** Specs are not trusted: text quoted from them is shown on a terminal, so
** control characters do not pass.
*/
#include "lua/base.h"

#include <stdio.h>

static const char *const formats[] = {
#define QG_MESSAGE_FORMAT(name, format) format,
    QG_MESSAGES(QG_MESSAGE_FORMAT)
#undef QG_MESSAGE_FORMAT
};

void qg_diag_clear(struct qg *q)
{
    qg_text_clear(&q->diagnostics);
    q->errors = 0;
}

/* In place. UTF-8 passes, control characters become blanks. */
static void make_printable(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 32 || text[i] == 127)
            text[i] = ' ';
}

/* The line itself, cut to a screen's width; nothing if there is none. */
static void put_source_line(struct qg *q, struct qg_location location)
{
    struct qg_text *text = &q->diagnostics;
    int length;
    const char *line = qg_files_line(q, location, &length);
    size_t start;

    if (!length)
        return;
    qg_text_put(q, text, "    ");
    start = text->length;
    qg_text_add(q, text, line, (size_t)(length < 200 ? length : 200));
    make_printable(text->data + start, text->length - start);
    qg_text_put(q, text, "\n");
}

/* Unwinds to qg_sandbox_protect: later errors are often echoes of the first. */
static void stop_after_too_many(struct qg *q)
{
    if (q->errors < QG_MAX_ERRORS)
        return;
    qg_text_print(q, &q->diagnostics,
                  "error: too many errors, stopped after %d\n", QG_MAX_ERRORS);
    q->fault = QG_STOPPED;
    lua_settop(q->L, 0);
    lua_pushnil(q->L);
    lua_error(q->L);
}

void qg_diag_note(struct qg *q, struct qg_location location, enum qg_message id,
                  ...)
{
    struct qg_text *text = &q->diagnostics;
    size_t start;
    va_list list;

    if (location.file >= 0)
        qg_text_print(q, text, "%s: ", qg_files_print(q, location));
    qg_text_put(q, text, "error: ");
    start = text->length;
    va_start(list, id);
    qg_text_vprint(q, text, formats[id], list);
    va_end(list);
    make_printable(text->data + start, text->length - start);
    qg_text_put(q, text, "\n");
    put_source_line(q, location);
    if (q->rendering)
        qg_text_print(q, text, "    while generating %s, of %s\n", q->rendering,
                      qg_files_print(q, q->rendering_of));
    q->errors++;
    stop_after_too_many(q);
}

int qg_diag_raise(lua_State *L, enum qg_message id, ...)
{
    char text[1024];
    va_list list;

    va_start(list, id);
    vsnprintf(text, sizeof text, formats[id], list);
    va_end(list);
    lua_pushstring(L, text);
    return lua_error(L);
}

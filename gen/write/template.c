/* SPDX-License-Identifier: Apache-2.0 */
/*
** template.c: from a template to a Lua function.
**
**     //$ for i = 0, 3 do           a line of Lua, as it is
**         sum[$(i)] = 0;            __t"    sum[";__v((i),"i");__t"] = 0;\n";
**     //$ end
**
** One line of the template is one line of the chunk, so the lines in Lua's own
** messages are the template's.
*/
#include "lua/base.h"
#include "write/write.h"

#include <string.h>

/* The inside of a Lua string. */
static void put_literal(struct qg *q, const char *text, size_t length)
{
    struct qg_text *out = &q->chunk;

    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\')
            qg_text_print(q, out, "\\%c", c);
        else if (c < 32 || c > 126)
            qg_text_print(q, out, "\\%03d", c);
        else
            qg_text_add(q, out, text + i, 1);
    }
}

/* A call that puts the text as it is. */
static void put_text(struct qg *q, const char *text, size_t length)
{
    if (!length)
        return;
    qg_text_put(q, &q->chunk, "__t\"");
    put_literal(q, text, length);
    qg_text_put(q, &q->chunk, "\";");
}

/* The expression's own text goes along for the message. */
static void put_expression(struct qg *q, const char *text, size_t length)
{
    qg_text_put(q, &q->chunk, "__v((");
    qg_text_add(q, &q->chunk, text, length);
    qg_text_put(q, &q->chunk, "),\"");
    put_literal(q, text, length);
    qg_text_put(q, &q->chunk, "\");");
}

/* Past a quoted string that begins at `at`. */
static const char *past_string(const char *at, const char *end)
{
    char quote = *at++;

    while (at < end && *at != quote)
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    return at < end ? at + 1 : end;
}

/* The ")" that closes the bracket opened before `at`; NULL if there is none. */
static const char *closing(const char *at, const char *end)
{
    int depth = 1;

    while (at < end) {
        if (*at == '"' || *at == '\'') {
            at = past_string(at, end);
            continue;
        }
        depth += (*at == '(') - (*at == ')');
        if (!depth)
            return at;
        at++;
    }
    return NULL;
}

/* Returns 0, or 1 and noted. */
static int put_line(struct qg *q, struct qg_location location, const char *at,
                    const char *end)
{
    const char *start = at, *close;

    for (; at < end; at++) {
        if (at[0] != '$' || at + 1 == end || at[1] != '(')
            continue;
        close = closing(at + 2, end);
        if (!close) {
            qg_diag_note(q, location, QG_E_DOLLAR);
            return 1;
        }
        put_text(q, start, (size_t)(at - start));
        put_expression(q, at + 2, (size_t)(close - at - 2));
        at = close;
        start = close + 1;
    }
    put_text(q, start, (size_t)(end - start));
    return 0;
}

/* The Lua of a "//$" line; NULL for any other. */
static const char *lua_of(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return end - at >= 3 && !memcmp(at, "//$", 3) ? at + 3 : NULL;
}

/* An include that is indented indents the included text. */
static void put_indent(struct qg *q, long columns, const char *lua,
                       const char *end)
{
    static const char word[] = "include";

    while (lua < end && *lua == ' ')
        lua++;
    if (columns && (size_t)(end - lua) > strlen(word) &&
        !memcmp(lua, word, strlen(word)))
        qg_text_print(q, &q->chunk, "__i(%ld);", columns);
}

/* Into q->chunk. Returns 0, or 1 and noted. */
static int translate(struct qg *q, int file)
{
    const char *at = q->files[file].text;
    const char *end = at + q->files[file].length;
    struct qg_location location = {file, 0};

    qg_text_clear(&q->chunk);
    qg_text_put(q, &q->chunk, "local __t,__v,__i=...;");
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        const char *lua = lua_of(at, next);

        location.line++;
        if (lua) {
            put_indent(q, lua - strlen("//$") - at, lua, next);
            qg_text_add(q, &q->chunk, lua, (size_t)((stop ? stop : end) - lua));
        } else if (put_line(q, location, at, next)) {
            return 1;
        }
        qg_text_put(q, &q->chunk, "\n");
        at = next;
    }
    return 0;
}

int qg_template_push(struct qg *q, int file)
{
    struct qg_input *input = &q->files[file];

    if (!input->chunk) {
        if (translate(q, file) ||
            qg_sandbox_load(q, file, q->chunk.data, q->chunk.length))
            return 1;
        input->chunk = luaL_ref(q->L, LUA_REGISTRYINDEX);
    }
    lua_rawgeti(q->L, LUA_REGISTRYINDEX, input->chunk);
    return 0;
}

/* ------------------------------------------------------------- as it runs */

static void put(lua_State *L, const char *text, size_t length)
{
    struct qg *q = qg_sandbox_owner(L);

    if (q->output.length + length > QG_MAX_OUTPUT)
        qg_diag_raise(L, QG_E_OUTPUT_SIZE, QG_MAX_OUTPUT);
    qg_text_add(q, &q->output, text, length);
}

/* __t: a text of the template. */
static int put_template(lua_State *L)
{
    size_t length;
    const char *text = lua_tolstring(L, 1, &length);

    put(L, text, length);
    return 0;
}

/* __v: a value of an expression, and the expression. */
static int put_value(lua_State *L)
{
    const char *expression = lua_tostring(L, 2), *text;
    size_t length;

    if (!lua_isinteger(L, 1) && lua_type(L, 1) != LUA_TSTRING) {
        int is_float = lua_type(L, 1) == LUA_TNUMBER;

        return qg_diag_raise(
            L, QG_E_VALUE_KIND, expression,
            is_float ? "a float" : qg_object_kind(L, 1),
            is_float ? "; write hex(x), or // for a whole quotient" : "");
    }
    text = lua_tolstring(L, 1, &length);
    put(L, text, length);
    return 0;
}

/* __i: the columns of the include that follows. */
static int put_columns(lua_State *L)
{
    qg_sandbox_owner(L)->indent = (int)lua_tointeger(L, 1);
    return 0;
}

void qg_template_run(struct qg *q)
{
    lua_rawgeti(q->L, LUA_REGISTRYINDEX, q->render_env);
    lua_setupvalue(q->L, -2, 1);
    lua_pushcfunction(q->L, put_template);
    lua_pushcfunction(q->L, put_value);
    lua_pushcfunction(q->L, put_columns);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* include.c: include "common/sizes.c": another template, in place;
   include("common/check_sizes.cu", { rolled = true }): with values of its
   own. */
#include "lua/base.h"
#include "write/sweep.h"
#include "write/write.h"

#include <string.h>

static int unknown(lua_State *L, const struct qg *q, const char *name)
{
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, name);
    for (int i = 0; i < q->nfiles; i++)
        if (q->files[i].kind == QG_TEMPLATE)
            qg_nearest_try(&nearest, q->files[i].name + strlen("templates/"));
    return qg_diag_raise(
        L, QG_E_INCLUDE_UNKNOWN, name,
        qg_nearest_hint(&nearest, "paths begin below templates/", ""));
}

/* Copy the pairs of the table at `from` into the table on top. */
static void copy_pairs(lua_State *L, int from)
{
    lua_pushnil(L);
    while (lua_next(L, from)) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
}

/* Until `leave`, templates see the values at stack index 2, too. The
   environment that they replace stays at index 3. */
static void enter(lua_State *L, struct qg *q)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->render_env);
    if (lua_isnil(L, 2))
        return;
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_getmetafield(L, 3, "__index");
    lua_getupvalue(L, 4, 1);
    lua_newtable(L);
    copy_pairs(L, 5);
    copy_pairs(L, 2);
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->template_globals);
    qg_sandbox_env(L);
    lua_rawseti(L, LUA_REGISTRYINDEX, q->render_env);
    lua_settop(L, 3);
}

/* The template itself may be one of those that include it. */
static void leave(lua_State *L, struct qg *q, int file)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->files[file].chunk);
    lua_pushvalue(L, 3);
    lua_setupvalue(L, -2, 1);
    lua_settop(L, 3);
    lua_rawseti(L, LUA_REGISTRYINDEX, q->render_env);
}

/* Indent the output from `begin` on, as far as it is C. */
static void indent(struct qg *q, size_t begin, int columns)
{
    const char *at, *next;

    if (!columns)
        return;
    qg_text_clear(&q->chunk);
    qg_text_put(q, &q->chunk, q->output.data + begin);
    q->output.length = begin;
    for (at = q->chunk.data; *at; at = next) {
        next = at + strcspn(at, "\n");
        next += *next == '\n';
        if (*at != '\n' && *at != '#')
            qg_text_print(q, &q->output, "%*s", columns, "");
        qg_text_add(q, &q->output, at, (size_t)(next - at));
    }
}

/* include(path, values): runs the template here; it sees the same values as
   this one, but not its locals: `values`, which may be absent, has those meant
   for it. */
int qg_include(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);
    const char *name = luaL_checkstring(L, 1);
    int file = qg_files_template(q, name), from = qg_sandbox_location(L).file;

    size_t begin = q->output.length;
    int columns = q->indent;

    q->indent = 0;
    lua_settop(L, 2);
    if (file < 0)
        return unknown(L, q, name);
    if (q->depth == QG_MAX_INCLUDES)
        return qg_diag_raise(L, QG_E_INCLUDE_DEPTH, QG_MAX_INCLUDES);
    q->files[file].render = q->renders; /* COUPLED: once */
    enter(L, q);
    if (qg_template_push(q, file)) {
        q->noted = 1;
        lua_pushnil(L);
        return lua_error(L);
    }
    q->depth++;
    qg_sweep_origin(q, file);
    qg_template_run(q);
    lua_call(L, 3, 0);
    q->depth--;
    indent(q, begin, columns);
    qg_sweep_origin(q, from);
    leave(L, q, file);
    return 0;
}

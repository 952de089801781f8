/* SPDX-License-Identifier: Apache-2.0 */
/*
** frozen.c: tables that specs and templates read but cannot change.
**
** A userdata whose user value is the table. A name that is not in it is an
** error, so that v.stagse is not nil; an integer is not, so that ipairs ends.
*/
#include "lua/base.h"

#define FROZEN "read-only table"

/* The nearest name in the table at stack index `table`. */
static void hint(lua_State *L, int table, const char *name,
                 struct qg_nearest *nearest)
{
    qg_nearest_start(nearest, name);
    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING)
            qg_nearest_try(nearest, lua_tostring(L, -1));
    }
}

/* Stack: the frozen table, the key. */
static int on_index(lua_State *L)
{
    struct qg_nearest nearest;
    char names[256];

    lua_getiuservalue(L, 1, 1);
    lua_pushvalue(L, 2);
    lua_rawget(L, 3);
    if (!lua_isnil(L, 4) || lua_type(L, 2) != LUA_TSTRING)
        return 1;
    hint(L, 3, lua_tostring(L, 2), &nearest);
    qg_pairs_names(L, 3, names, sizeof names);
    return qg_diag_raise(L, QG_E_NO_FIELD, lua_tostring(L, 2),
                         qg_nearest_hint(&nearest, "it has ", names));
}

/* Values are shared by all functions and templates of a point. */
static int on_newindex(lua_State *L)
{
    return qg_diag_raise(L, QG_E_FROZEN);
}

static int on_length(lua_State *L)
{
    lua_getiuservalue(L, 1, 1);
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, -1));
    return 1;
}

void qg_frozen_build(lua_State *L)
{
    static const luaL_Reg events[] = {{"__index", on_index},
                                      {"__newindex", on_newindex},
                                      {"__len", on_length},
                                      {NULL, NULL}};

    luaL_newmetatable(L, FROZEN);
    luaL_setfuncs(L, events, 0);
    lua_pop(L, 1);
}

/* Its functions see the content only through the metatable, and specs have no
   way to a metatable. */
void qg_frozen_wrap(lua_State *L)
{
    lua_newuserdatauv(L, 0, 1);
    lua_insert(L, -2);
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, FROZEN);
}

int qg_frozen_content(lua_State *L, int index)
{
    if (!luaL_testudata(L, index, FROZEN))
        return 0;
    lua_getiuservalue(L, index, 1);
    return 1;
}

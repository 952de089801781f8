/* SPDX-License-Identifier: Apache-2.0 */
/* object.c: the generator's own things as values of Lua: userdata that hold a
   pointer. The metatable of each kind says how messages call its values, so
   that this file need not know the kinds. */
#include "lua/base.h"

#define CALLED "__called"

void qg_object_define(lua_State *L, const char *metatable, const char *called)
{
    luaL_newmetatable(L, metatable);
    lua_pushstring(L, called);
    lua_setfield(L, -2, CALLED);
}

void qg_object_push(lua_State *L, const void *object, const char *metatable)
{
    const void **value = lua_newuserdatauv(L, sizeof *value, 0);

    *value = object;
    luaL_setmetatable(L, metatable);
}

void *qg_object_at(lua_State *L, int index, const char *metatable)
{
    void **value = luaL_testudata(L, index, metatable);

    return value ? *value : NULL;
}

/* A userdata whose kind has no name is a frozen table. */
const char *qg_object_kind(lua_State *L, int index)
{
    static const char *const names[] = {
        [LUA_TNIL] = "nil",         [LUA_TBOOLEAN] = "a boolean",
        [LUA_TNUMBER] = "a number", [LUA_TSTRING] = "a text",
        [LUA_TTABLE] = "a table",   [LUA_TFUNCTION] = "a function",
        [LUA_TUSERDATA] = "a table"};
    int type = lua_type(L, index);
    const char *called;

    if (type == LUA_TUSERDATA &&
        luaL_getmetafield(L, index, CALLED) != LUA_TNIL) {
        called = lua_tostring(L, -1); /* it lives as long as the metatable */
        lua_pop(L, 1);
        return called;
    }
    return type >= 0 && type <= LUA_TUSERDATA && names[type] ? names[type]
                                                             : "something else";
}

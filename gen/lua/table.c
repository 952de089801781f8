/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: the table functions of specs. Each is charged for the items it
   touches. */
#include "lua/base.h"

enum { MOST = 64 };

/* The length of the list at index 1. */
static lua_Integer length_of(lua_State *L)
{
    lua_Integer n;

    luaL_checktype(L, 1, LUA_TTABLE);
    n = (lua_Integer)lua_rawlen(L, 1);
    qg_sandbox_charge(L, n);
    return n;
}

/* The range of the list at index 1 that the arguments from index `at` on name,
   without them the whole list; an empty one ends before it begins. It is inside
   the list, so that no range takes longer than the list is. */
static void range_of(lua_State *L, int at, lua_Integer *first,
                     lua_Integer *last)
{
    const lua_Integer n = length_of(L);

    *first = luaL_optinteger(L, at, 1);
    *last = luaL_optinteger(L, at + 1, n);
    if (*first > *last)
        return;
    luaL_argcheck(L, *first >= 1 && *first <= n, at, "out of the list");
    luaL_argcheck(L, *last <= n, at + 1, "out of the list");
}

/* concat(list, separator, first, last) */
static int concat(lua_State *L)
{
    const char *separator = luaL_optstring(L, 2, "");
    lua_Integer first, last;
    luaL_Buffer out;

    range_of(L, 3, &first, &last);
    luaL_buffinit(L, &out);
    for (lua_Integer i = first; i <= last; i++) {
        lua_rawgeti(L, 1, i);
        if (!lua_isstring(L, -1))
            return luaL_error(L,
                              "element %I is a %s; concat takes texts and "
                              "numbers",
                              i, luaL_typename(L, -1));
        luaL_addvalue(&out);
        if (i < last)
            luaL_addstring(&out, separator);
    }
    luaL_pushresult(&out);
    return 1;
}

/* insert(list, value) or insert(list, position, value) */
static int insert(lua_State *L)
{
    lua_Integer n = length_of(L), at = n + 1;

    if (lua_gettop(L) > 2) {
        at = luaL_checkinteger(L, 2);
        luaL_argcheck(L, at >= 1 && at <= n + 1, 2, "out of the list");
        lua_remove(L, 2);
    }
    luaL_checkany(L, 2);
    for (lua_Integer i = n; i >= at; i--) {
        lua_rawgeti(L, 1, i);
        lua_rawseti(L, 1, i + 1);
    }
    lua_settop(L, 2);
    lua_rawseti(L, 1, at);
    return 0;
}

/* join(list, ...): a new list of the items of all of them. */
static int join(lua_State *L)
{
    int lists = lua_gettop(L);
    lua_Integer used = 0;

    lua_newtable(L);
    for (int i = 1; i <= lists; i++) {
        lua_Integer n;

        if (qg_frozen_content(L, i))
            lua_replace(L, i);
        luaL_checktype(L, i, LUA_TTABLE);
        n = (lua_Integer)lua_rawlen(L, i);
        qg_sandbox_charge(L, n);
        for (lua_Integer j = 1; j <= n; j++) {
            lua_rawgeti(L, i, j);
            lua_rawseti(L, lists + 1, ++used);
        }
    }
    return 1;
}

/* remove(list) or remove(list, position) */
static int take_out(lua_State *L)
{
    lua_Integer n = length_of(L), at = luaL_optinteger(L, 2, n);

    if (!n)
        return 0;
    luaL_argcheck(L, at >= 1 && at <= n, 2, "out of the list");
    lua_rawgeti(L, 1, at);
    for (; at < n; at++) {
        lua_rawgeti(L, 1, at + 1);
        lua_rawseti(L, 1, at);
    }
    lua_pushnil(L);
    lua_rawseti(L, 1, n);
    return 1;
}

/* unpack(list, first, last): few, since each costs a stack slot. */
static int unpack(lua_State *L)
{
    lua_Integer first, last;

    if (qg_frozen_content(L, 1))
        lua_replace(L, 1);
    range_of(L, 2, &first, &last);
    if (first > last)
        return 0;
    luaL_argcheck(L, last - first < MOST, 1,
                  "at most 64 elements can be unpacked");
    luaL_checkstack(L, (int)(last - first) + 1, NULL);
    for (lua_Integer i = first; i <= last; i++)
        lua_rawgeti(L, 1, i);
    return (int)(last - first) + 1;
}

const luaL_Reg qg_table[] = {{"concat", concat}, {"insert", insert},
                             {"join", join},     {"remove", take_out},
                             {"unpack", unpack}, {NULL, NULL}};

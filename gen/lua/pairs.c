/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c: pairs for specs: the keys come sorted. */
#include "lua/base.h"

/* Upvalues: the table, its keys, how far. */
static int next_pair(lua_State *L)
{
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(3)) + 1;

    lua_pushinteger(L, i);
    lua_replace(L, lua_upvalueindex(3));
    if (lua_rawgeti(L, lua_upvalueindex(2), i) == LUA_TNIL)
        return 1;
    lua_pushvalue(L, -1);
    lua_rawget(L, lua_upvalueindex(1));
    return 2;
}

int qg_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    if (qg_frozen_content(L, 1))
        lua_replace(L, 1);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    if (qg_pairs_keys(L, 1) < 0)
        return qg_diag_raise(L, QG_E_KEY_KIND, qg_object_kind(L, -1));
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, next_pair, 3);
    return 1;
}

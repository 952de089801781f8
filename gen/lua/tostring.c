/* SPDX-License-Identifier: Apache-2.0 */
/* tostring.c: tostring for specs: never the address of anything. */
#include "lua/base.h"

int qg_tostring(lua_State *L)
{
    int type;

    luaL_checkany(L, 1);
    type = qg_types_check(L, 1);
    if (type) {
        lua_pushstring(L, qg_types_of(type)->name);
        return 1;
    }
    switch (lua_type(L, 1)) {
    case LUA_TNIL:
    case LUA_TBOOLEAN:
    case LUA_TNUMBER:
    case LUA_TSTRING:
        luaL_tolstring(L, 1, NULL);
        return 1;
    default:
        return qg_diag_raise(L, QG_E_NO_TEXT, qg_object_kind(L, 1));
    }
}

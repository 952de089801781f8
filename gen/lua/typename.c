/* SPDX-License-Identifier: Apache-2.0 */
/* typename.c: type for specs. A frozen table is a table to them. */
#include "lua/base.h"

int qg_typename(lua_State *L)
{
    luaL_checkany(L, 1);
    if (qg_frozen_content(L, 1))
        lua_pushliteral(L, "table");
    else if (qg_types_check(L, 1))
        lua_pushliteral(L, "type");
    else
        lua_pushstring(L, luaL_typename(L, 1));
    return 1;
}

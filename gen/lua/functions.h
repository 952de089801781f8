/* SPDX-License-Identifier: Apache-2.0 */
/*
** functions.h: functions that specs and templates see; each is in the file of
** its name.
*/
#ifndef QUERN_GEN_LUA_FUNCTIONS_H
#define QUERN_GEN_LUA_FUNCTIONS_H

#include "qg.h"

int qg_pairs(lua_State *), qg_tostring(lua_State *), qg_format(lua_State *),
    qg_hex(lua_State *), qg_typename(lua_State *); /* type */
extern const luaL_Reg qg_table[];

const char *qg_hex_float(char buffer[32], float value);

#endif

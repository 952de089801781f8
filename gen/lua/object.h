/* SPDX-License-Identifier: Apache-2.0 */
/*
** object.h: the generator's own things as values of Lua.
*/
#ifndef QUERN_GEN_LUA_OBJECT_H
#define QUERN_GEN_LUA_OBJECT_H

#include "qg.h"

/* Push the metatable of objects that messages call "a scale", say. */
void qg_object_define(lua_State *, const char *metatable, const char *called);
/* Push a pointer as a value, and get it back: NULL if it is another kind. */
void qg_object_push(lua_State *, const void *, const char *metatable);
void *qg_object_at(lua_State *, int index, const char *metatable);
/* How any value of a spec is called in messages, e.g. "a text". */
const char *qg_object_kind(lua_State *, int index);

#endif

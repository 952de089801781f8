/* SPDX-License-Identifier: Apache-2.0 */
/*
** frozen.h: tables that specs and templates cannot change.
*/
#ifndef QUERN_GEN_LUA_FROZEN_H
#define QUERN_GEN_LUA_FROZEN_H

#include "qg.h"

void qg_frozen_build(lua_State *);
void qg_frozen_wrap(lua_State *);              /* the table on top */
int qg_frozen_content(lua_State *, int index); /* pushes it; 0: not frozen */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** sandbox.h: calling functions of specs and templates.
*/
#ifndef QUERN_GEN_LUA_SANDBOX_H
#define QUERN_GEN_LUA_SANDBOX_H

#include "qg.h"

struct qg *qg_sandbox_owner(lua_State *);
int qg_sandbox_protect(struct qg *, void (*)(struct qg *, void *), void *);
int qg_sandbox_load(struct qg *, int file, const char *text, size_t length);
int qg_sandbox_call(struct qg *, int arguments, int results,
                    struct qg_location);
void qg_sandbox_count(lua_State *, lua_Debug *);
void qg_sandbox_charge(lua_State *, long long steps);
struct qg_location qg_sandbox_location(lua_State *);
/* An environment over the two tables on top, the second may be nil. */
void qg_sandbox_env(lua_State *);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** pairs.h: the keys of tables, sorted.
*/
#ifndef QUERN_GEN_LUA_PAIRS_H
#define QUERN_GEN_LUA_PAIRS_H

#include "qg.h"

/* Push the keys of the table at `index` as a list, integers first, sorted.
** Returns their number, or -1 with the key of another kind pushed. */
int qg_pairs_keys(lua_State *, int index);
/* The names among them as "a, b, c", as far as the buffer goes. */
void qg_pairs_names(lua_State *, int index, char *buffer, size_t size);
/* A key that makes the table something else than a list; NULL if none does. */
const char *qg_pairs_other(lua_State *, int index);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** param.h: the parameters of kernels, as templates see them.
*/
#ifndef QG_PARAM_H
#define QG_PARAM_H

#include <lua5.4/lua.h>

/* The row of a parameter in QN_PARAMS. */
int qg_param_find(const char *name);
/* Push an entry of `params`: the parameter of this row, the one at `index` of
   `count`. */
void qg_param_push(lua_State *, int row, int index, int count);

#endif

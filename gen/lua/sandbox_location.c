/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_location.c: the line that runs. */
#include "lua/base.h"

#include <stdlib.h>

/* The innermost line of a spec or template that runs; file -1 if none does. */
struct qg_location qg_sandbox_location(lua_State *L)
{
    lua_Debug debug;

    for (int level = 0; lua_getstack(L, level, &debug); level++) {
        lua_getinfo(L, "Sl", &debug);
        if (debug.source[0] == '@' && debug.currentline > 0)
            return (struct qg_location){atoi(debug.source + 1),
                                        debug.currentline};
    }
    return (struct qg_location){-1, 0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* once.c: once "cast/arith.c": include, for pieces that several others need. */
#include "lua/base.h"
#include "write/write.h"

/* once(path): the template and an empty line after it, unless this kernel has
   it already. With it a piece includes its dependencies, in any including
   text. */
int qg_once(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);
    int file = qg_files_template(q, luaL_checkstring(L, 1));

    if (file >= 0 && q->files[file].render == q->renders) /* COUPLED: once */
        return 0;
    lua_settop(L, 1); /* values of one includer would not be the next one's */
    qg_include(L);
    qg_text_put(q, &q->output, "\n");
    return 0;
}

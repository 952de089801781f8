/* SPDX-License-Identifier: Apache-2.0 */
/*
** include.c: include "common/sizes.c": another template, in place.
*/
#include "lua/diag.h"
#include "lua/files.h"
#include "lua/nearest.h"
#include "lua/sandbox.h"
#include "write/write.h"

#include <string.h>

static int unknown(lua_State *L, const struct qg *q, const char *name)
{
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, name);
    for (int i = 0; i < q->nfiles; i++)
        if (q->files[i].kind == QG_TEMPLATE)
            qg_nearest_try(&nearest, q->files[i].name + strlen("templates/"));
    return qg_diag_raise(
        L, QG_E_INCLUDE_UNKNOWN, name,
        qg_nearest_hint(&nearest, "paths begin below templates/", ""));
}

/*
** include(path): runs the template here; it sees what this one sees, but not
** its locals.
*/
int qg_include(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);
    const char *name = luaL_checkstring(L, 1);
    int file = qg_files_template(q, name);

    if (file < 0)
        return unknown(L, q, name);
    if (q->depth == QG_MAX_INCLUDES)
        return qg_diag_raise(L, QG_E_INCLUDE_DEPTH, QG_MAX_INCLUDES);
    q->files[file].render = q->renders; /* COUPLED: once */
    if (qg_template_push(q, file)) {
        q->noted = 1;
        lua_pushnil(L);
        return lua_error(L);
    }
    q->depth++;
    qg_template_run(q);
    lua_call(L, 2, 0);
    q->depth--;
    return 0;
}

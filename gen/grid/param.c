/* SPDX-License-Identifier: Apache-2.0 */
/*
** param.c: the parameters of kernels, as templates see them.
*/
#include "grid/param.h"
#include "lua/frozen.h"
#include "registry.h"

#include <string.h>

static const struct param_row {
    const char *name, *meaning, *type, *kind, *operand, *member;
} param_rows[] = {
#define PARAM_ROW(n, t, m) {.name = #n, .meaning = m, .type = t},
    QN_PARAMS(PARAM_ROW)
#undef PARAM_ROW
};

/* The field's rule has let only known names pass. */
int qg_param_find(const char *name)
{
    int i = 0;

    while (strcmp(param_rows[i].name, name))
        i++;
    return i;
}

static void set_text(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

/* As C declares it: "const void *offsets", "int groups". */
static void set_declaration(lua_State *L, const char *key, const char *type,
                            const char *name)
{
    size_t length = strlen(type);

    lua_pushfstring(L, "%s%s%s", type, type[length - 1] == '*' ? "" : " ",
                    name);
    lua_setfield(L, -2, key);
}

/* One entry of a template's params. An attribute that the row lacks is "". */
void qg_param_push(lua_State *L, int row, int index, int count)
{
    const struct param_row *r = &param_rows[row];

    lua_createtable(L, 0, 11);
    set_text(L, "name", r->name);
    set_text(L, "type", r->type);
    set_text(L, "meaning", r->meaning);
    set_text(L, "kind", r->kind ? r->kind : "");
    set_text(L, "operand", r->operand ? r->operand : "");
    set_text(L, "member", r->member ? r->member : "");
    set_text(L, "comma", index + 1 < count ? "," : "");
    set_declaration(L, "declaration", r->type, r->name);
    if (r->member)
        set_declaration(L, "member_declaration", r->type, r->member);
    lua_pushboolean(L, r->type[strlen(r->type) - 1] == '*');
    lua_setfield(L, -2, "pointer");
    lua_pushinteger(L, index);
    lua_setfield(L, -2, "index");
    qg_frozen_wrap(L);
}

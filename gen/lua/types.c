/* SPDX-License-Identifier: Apache-2.0 */
/* types.c: the number types, which specs name by symbols: bf16, e4m3, ... */
#include "lua/base.h"

#include <string.h>

#define TYPE "type"

#define ROW(name, word, stored, bits, max, tiny)                               \
    {word, QUERN_##name, bits, max, tiny},
static const struct qg_type types[] = {QUERN_TYPES(ROW)};

enum { COUNT = sizeof types / sizeof *types };

const struct qg_type *qg_types_of(int id)
{
    for (int i = 0; i < COUNT; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}

/* 0 for every other value. */
int qg_types_check(lua_State *L, int index)
{
    const struct qg_type *type = qg_object_at(L, index, TYPE);

    return type ? type->id : 0;
}

/* The symbol by which specs name the type. */
void qg_types_push(lua_State *L, int id)
{
    qg_object_push(L, qg_types_of(id), TYPE);
}

/* The same type with another largest number, as a rule is given it. */
void qg_types_push_to(lua_State *L, int id, double max)
{
    struct qg_type *type = qg_mem_new(qg_sandbox_owner(L), sizeof *type);

    *type = *qg_types_of(id);
    type->max = max;
    qg_object_push(L, type, TYPE);
}

/* e4m3.max: floats, since they stand in formulas; the rest are integers. */
static int on_index(lua_State *L)
{
    const struct qg_type *type = *(const struct qg_type **)lua_touserdata(L, 1);
    const char *name = luaL_checkstring(L, 2);
    struct qg_nearest nearest;

    if (!strcmp(name, "name"))
        lua_pushstring(L, type->name);
    else if (!strcmp(name, "bits"))
        lua_pushinteger(L, type->bits);
    else if (!strcmp(name, "bytes") && type->bits % 8 == 0)
        lua_pushinteger(L, type->bits / 8);
    else if (!strcmp(name, "max"))
        lua_pushnumber(L, type->max);
    else {
        qg_nearest_start(&nearest, name);
        qg_nearest_words(&nearest, type->bits % 8 ? "name bits max"
                                                  : "name bits bytes max");
        qg_diag_raise(L, QG_E_NO_FIELD, name,
                      qg_nearest_hint(&nearest, "a type has ",
                                      type->bits % 8
                                          ? "name, bits, max"
                                          : "name, bits, bytes, max"));
    }
    return 1;
}

static int on_newindex(lua_State *L)
{
    return qg_diag_raise(L, QG_E_FROZEN);
}

/* e4m3(x), where a rule would round. */
static int on_call(lua_State *L)
{
    return qg_diag_raise(L, QG_E_TYPE_CALL,
                         qg_types_of(qg_types_check(L, 1))->name);
}

/* of.element == e4m3: each is a value of its own. */
static int on_equal(lua_State *L)
{
    lua_pushboolean(L, qg_types_check(L, 1) == qg_types_check(L, 2));
    return 1;
}

/* Into the table on top: each type by its name. */
void qg_types_build(struct qg *q)
{
    lua_State *L = q->L;

    qg_object_define(L, TYPE, "a type");
    lua_pushcfunction(L, on_index);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, on_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pushcfunction(L, on_call);
    lua_setfield(L, -2, "__call");
    lua_pushcfunction(L, on_equal);
    lua_setfield(L, -2, "__eq");
    lua_pop(L, 1);
    for (int i = 0; i < COUNT; i++) {
        if (!types[i].max)
            continue;
        qg_object_push(L, &types[i], TYPE);
        lua_setfield(L, -2, types[i].name);
    }
}

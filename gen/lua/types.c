/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.c: the number types, which specs name by symbols: bf16, e4m3, ...
*/
#include "lua/diag.h"
#include "lua/nearest.h"
#include "lua/object.h"
#include "lua/types.h"

#include <string.h>

#define TYPE "type"

static const struct qg_type types[] = {
    {"bf16", QUERN_BF16, 16, 0x1.fep127, 0x1p-133},
    {"f16", QUERN_F16, 16, 65504, 0x1p-24},
    {"f32", QUERN_F32, 32, 0x1.fffffep127, 0x1p-149},
    {"e4m3", QUERN_E4M3, 8, 448, 0x1p-9},
    {"e5m2", QUERN_E5M2, 8, 57344, 0x1p-16},
    {"e2m3", QUERN_E2M3, 6, 7.5, 0.125},
    {"e3m2", QUERN_E3M2, 6, 28, 0.0625},
    {"e2m1", QUERN_E2M1, 4, 6, 0.5},
    {"e8m0", QUERN_E8M0, 8, 0x1p127, 0x1p-127},
    {"i8", QUERN_I8, 8, 127, 1},
};

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

/* Into the table on top: each type by its name. */
void qg_types_build(struct qg *q)
{
    lua_State *L = q->L;

    qg_object_define(L, TYPE, "a type");
    lua_pushcfunction(L, on_index);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, on_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pop(L, 1);
    for (int i = 0; i < COUNT; i++) {
        qg_object_push(L, &types[i], TYPE);
        lua_setfield(L, -2, types[i].name);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* pairs_keys.c: a table's keys, in an order that does not depend on hashing. */
#include "lua/base.h"

#include <stdlib.h>
#include <string.h>

struct key {
    const char *text; /* NULL: the integer */
    size_t length;
    lua_Integer integer;
};

/* Integers before strings, then by bytes: no locale decides. */
static int by_order(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    size_t shorter = x->length < y->length ? x->length : y->length;
    int order;

    if (!x->text || !y->text) {
        if (x->text || y->text)
            return x->text ? 1 : -1;
        return x->integer < y->integer ? -1 : x->integer > y->integer;
    }
    order = memcmp(x->text, y->text, shorter);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* Returns how many; -1 and the key on the stack for one of another kind. */
static lua_Integer collect(lua_State *L, int table, struct key *keys)
{
    lua_Integer count = 0;

    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pop(L, 1);
        if (!lua_isinteger(L, -1) && lua_type(L, -1) != LUA_TSTRING)
            return -1;
        if (keys && lua_type(L, -1) == LUA_TSTRING)
            keys[count].text = lua_tolstring(L, -1, &keys[count].length);
        else if (keys)
            keys[count].integer = lua_tointeger(L, -1);
        count++;
    }
    return count;
}

/* A list of the keys is made at once, so that the loop may change the table. */
int qg_pairs_keys(lua_State *L, int index)
{
    int table = lua_absindex(L, index);
    lua_Integer count = collect(L, table, NULL);
    struct key *keys;

    if (count < 0)
        return -1;
    qg_sandbox_charge(L, count * 8);
    keys = lua_newuserdatauv(L, (size_t)(count + 1) * sizeof *keys, 0);
    memset(keys, 0, (size_t)(count + 1) * sizeof *keys);
    collect(L, table, keys);
    qsort(keys, (size_t)count, sizeof *keys, by_order);
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 0; i < count; i++) {
        if (keys[i].text)
            lua_pushlstring(L, keys[i].text, keys[i].length);
        else
            lua_pushinteger(L, keys[i].integer);
        lua_rawseti(L, -2, i + 1);
    }
    lua_remove(L, -2);
    return (int)count;
}

void qg_pairs_names(lua_State *L, int index, char *buffer, size_t size)
{
    int count = qg_pairs_keys(L, index);
    size_t used = 0;

    buffer[0] = 0;
    for (int i = 1; i <= count; i++) {
        const char *name;

        if (lua_rawgeti(L, -1, i) == LUA_TSTRING) {
            name = lua_tostring(L, -1);
            if (used + strlen(name) + 6 < size) {
                used = strlen(strcat(strcat(buffer, used ? ", " : ""), name));
            } else if (used + 6 < size) {
                strcat(buffer, " ...");
                used = size;
            }
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* It lives as long as the table, or for ever. */
const char *qg_pairs_other(lua_State *L, int index)
{
    int table = lua_absindex(L, index);
    lua_Integer count = (lua_Integer)lua_rawlen(L, table);
    const char *found = NULL;

    lua_pushnil(L);
    while (!found && lua_next(L, table)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING)
            found = lua_tostring(L, -1);
        else if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 ||
                 lua_tointeger(L, -1) > count)
            found = qg_object_kind(L, -1);
    }
    if (found)
        lua_pop(L, 1);
    return found;
}

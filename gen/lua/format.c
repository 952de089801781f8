/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: string.format for specs, with the conversions that give the same
   text on any machine: no pointers, no floats. */
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

/* At most two digits, as C's own conversions need no more. */
static size_t digits(const char *at)
{
    size_t length = strspn(at, "0123456789");

    return length < 3 ? length : 2;
}

/* Copy the conversion that begins at `at`: % flags width .precision letter.
   Returns where it ends. */
static const char *read_conversion(lua_State *L, const char *at, char *copy)
{
    size_t length = 1 + strspn(at + 1, "-+ #0"), flags;

    if (length > 6)
        luaL_error(L, "a conversion has too many flags");
    flags = length - 1;
    length += digits(at + length);
    if (at[length] == '.')
        length += 1 + digits(at + length + 1);
    memcpy(copy, at, length + 1);
    copy[length + 1] = 0;
    if (!at[length] || !strchr("disxXc%", at[length]))
        qg_diag_raise(L, QG_E_FORMAT_KIND, at[length] ? at[length] : '%');
    if (strchr("sc", at[length]) && strspn(at + 1, "-") != flags)
        luaL_error(L, "a text's only flag is -");
    return at + length + 1;
}

/* Lua's integers are long long. */
static void put_integer(lua_State *L, luaL_Buffer *out, char *conversion,
                        int argument)
{
    char text[160], kind[16];
    size_t last = strlen(conversion) - 1;
    int length;

    snprintf(kind, sizeof kind, "%.*sll%c", (int)last, conversion,
             conversion[last]);
    if (conversion[last] == 'c')
        length = snprintf(text, sizeof text, conversion,
                          (int)luaL_checkinteger(L, argument));
    else
        length =
            snprintf(text, sizeof text, kind, luaL_checkinteger(L, argument));
    luaL_addlstring(out, text, (size_t)length);
}

/* Accepts the values that tostring takes, except those that have only an
   address. */
static void put_string(lua_State *L, luaL_Buffer *out, const char *conversion,
                       int argument)
{
    char text[160];

    lua_pushcfunction(L, qg_tostring);
    lua_pushvalue(L, argument);
    lua_call(L, 1, 1);
    if (conversion[1] == 's') {
        luaL_addvalue(out);
        return;
    }
    if ((size_t)snprintf(text, sizeof text, conversion, lua_tostring(L, -1)) >=
        sizeof text)
        luaL_error(L, "a text is too long for a width");
    lua_pop(L, 1);
    luaL_addstring(out, text);
}

/* format(text, ...): one argument for each conversion. */
int qg_format(lua_State *L)
{
    const char *at = luaL_checkstring(L, 1);
    int argument = 1;
    char conversion[16];
    luaL_Buffer out;

    luaL_buffinit(L, &out);
    while (*at) {
        if (*at != '%') {
            luaL_addchar(&out, *at++);
            continue;
        }
        at = read_conversion(L, at, conversion);
        if (at[-1] == '%') {
            luaL_addchar(&out, '%');
            continue;
        }
        luaL_checkany(L, ++argument);
        if (at[-1] == 's')
            put_string(L, &out, conversion, argument);
        else
            put_integer(L, &out, conversion, argument);
    }
    luaL_pushresult(&out);
    return 1;
}

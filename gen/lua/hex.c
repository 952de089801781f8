/* SPDX-License-Identifier: Apache-2.0 */
/* hex.c: a float constant in hex, as generated code writes it. */
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

/* "0x1.24924ap-9f": exact, and the same text with any C library's %a. Infinity
   and NaN have none; callers handle them before. */
const char *qg_hex_float(char buffer[32], float value)
{
    unsigned int bits, fraction;
    int exponent, digits = 6;
    const char *sign;

    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 31 ? "-" : "";
    exponent = (int)(bits >> 23 & 0xff) - 127;
    fraction = (bits & 0x7fffff) << 1;
    if (!(bits & 0x7fffffff)) {
        snprintf(buffer, 32, "%s0x0p+0f", sign);
        return buffer;
    }
    if (exponent == -127) { /* subnormal: shift up to a leading 1 */
        for (exponent = -126; !(fraction & 0x1000000); exponent--)
            fraction <<= 1;
        fraction &= 0xffffff;
    }
    while (digits && !(fraction & 15)) {
        fraction >>= 4;
        digits--;
    }
    if (digits)
        snprintf(buffer, 32, "%s0x1.%0*xp%+df", sign, digits, fraction,
                 exponent);
    else
        snprintf(buffer, 32, "%s0x1p%+df", sign, exponent);
    return buffer;
}

int qg_hex(lua_State *L)
{
    float value = (float)luaL_checknumber(L, 1);
    char buffer[32];

    if (!(value - value == 0))
        return luaL_error(L, "hex takes a finite number");
    lua_pushstring(L, qg_hex_float(buffer, value));
    return 1;
}

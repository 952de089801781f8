/* SPDX-License-Identifier: Apache-2.0 */
/*
** globals.c: the functions and values that specs and templates can reach.
**
** The environment holds a list of names and nothing else: functions that can
** hang (patterns, string.rep, table.move, sort), look outside (io, os, load) or
** undo the rest (metatables, raw access, pcall) are not in it.
*/
#include "globals.h"
#include "lua/base.h"
#include "rule/trace.h"
#include "statement/word.h"
#include "write/write.h"

#include <lua5.4/lualib.h>

/* Into the table on top: `names` of the library that `open` makes. */
static void take(lua_State *L, lua_CFunction open, const char *const *names)
{
    lua_pushcfunction(L, open);
    lua_call(L, 0, 1);
    for (; *names; names++) {
        lua_getfield(L, -1, *names);
        lua_setfield(L, -3, *names);
    }
    lua_pop(L, 1);
}

/* The functions without a library. */
static void build_base(lua_State *L)
{
    static const char *const names[] = {"assert", "error", "ipairs", "tonumber",
                                        NULL};
    static const luaL_Reg own[] = {{"pairs", qg_pairs},
                                   {"tostring", qg_tostring},
                                   {"type", qg_typename},
                                   {"hex", qg_hex},
                                   {NULL, NULL}};

    take(L, luaopen_base, names);
    luaL_setfuncs(L, own, 0);
    lua_pushinteger(L, 1024);
    lua_setfield(L, -2, "KiB");
}

/* math without functions that depend on the machine's libm, or on chance. */
static void build_math(lua_State *L)
{
    static const char *const names[] = {
        "abs",        "ceil", "floor", "fmod",      "huge", "max",
        "maxinteger", "min",  "sqrt",  "tointeger", "type", NULL};

    lua_newtable(L);
    take(L, luaopen_math, names);
    qg_frozen_wrap(L);
    lua_setfield(L, -2, "math");
}

/* string, also for ("text"):upper(); no arithmetic on texts. */
static void build_string(lua_State *L)
{
    static const char *const names[] = {"byte", "char",  "len", "lower",
                                        "sub",  "upper", NULL};

    lua_newtable(L);
    take(L, luaopen_string, names);
    lua_pushcfunction(L, qg_format);
    lua_setfield(L, -2, "format");
    qg_frozen_wrap(L);
    lua_pushliteral(L, "");
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
    lua_setfield(L, -2, "string");
}

static void build_table(lua_State *L)
{
    lua_newtable(L);
    luaL_setfuncs(L, qg_table, 0);
    qg_frozen_wrap(L);
    lua_setfield(L, -2, "table");
}

#define NAME(name, word, ...)         word,
#define OPERANDS(name, word, operands) operands,
static const char *const activations[] = {QUERN_ACTIVATIONS(NAME)};
static const int operands[] = {QUERN_ACTIVATIONS(OPERANDS)};

/* Into the table on top: the names of activations of as many operands. */
static void build_activations_of(lua_State *L, int count, const char *field)
{
    int n = 0;

    lua_newtable(L);
    for (int i = QUERN_SWIGLU; i < QUERN_ACTIVATION_COUNT; i++)
        if (operands[i] == count) {
            lua_pushstring(L, activations[i]);
            lua_rawseti(L, -2, ++n);
        }
    qg_frozen_wrap(L);
    lua_setfield(L, -2, field);
}

/* Into the table on top: activations as a list, and those of one operand and of
   two; as bits for code. */
static void build_activations(lua_State *L)
{
    int bits = 0;

    lua_newtable(L);
    for (int i = QUERN_SWIGLU; i < QUERN_ACTIVATION_COUNT; i++) {
        lua_pushstring(L, activations[i]);
        lua_rawseti(L, -2, i);
        bits |= (operands[i] == 2) << i;
    }
    build_activations_of(L, 1, "plain");
    build_activations_of(L, 2, "gated");
    lua_pushinteger(L, bits);
    lua_setfield(L, -2, "gated_bits");
    qg_frozen_wrap(L);
    lua_setfield(L, -2, "activations");
}

/* Add to the table on top the names that specs and templates share. */
static void build_common(struct qg *q)
{
    build_base(q->L);
    build_math(q->L);
    build_string(q->L);
    build_table(q->L);
    build_activations(q->L);
}

/* Templates see no words: they cannot declare anything. */
static void build_template_globals(struct qg *q)
{
    lua_State *L = q->L;

    lua_newtable(L);
    build_common(q);
    lua_pushcfunction(L, qg_include);
    lua_setfield(L, -2, "include");
    lua_pushcfunction(L, qg_once);
    lua_setfield(L, -2, "once");
    lua_pushcfunction(L, qg_rule);
    lua_setfield(L, -2, "rule");
    lua_newtable(L);
    qg_types_build(q);
    qg_frozen_wrap(L);
    lua_setfield(L, -2, "types");
    q->template_globals = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Once for each generator. */
void qg_globals_build(struct qg *q)
{
    lua_State *L = q->L;

    lua_sethook(L, qg_sandbox_count, LUA_MASKCOUNT, QG_STEP);
    qg_frozen_build(L);
    lua_newtable(L);
    build_common(q);
    qg_types_build(q);
    qg_trace_build(q);
    qg_trace_call_build(q);
    qg_condition_build(q);
    qg_word_build(q);
    lua_pushnil(L);
    qg_sandbox_env(L);
    q->env = luaL_ref(L, LUA_REGISTRYINDEX);
    build_template_globals(q);
}

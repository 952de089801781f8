/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_env.c: the environment of a spec or template: reading a name that is
   not there is an error, and so is assigning to one. */
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

/* Functions that a programmer of Lua would miss. */
static int is_of_lua(const char *name)
{
    static const char *const names[] = {
        "_G",       "collectgarbage", "coroutine", "debug",
        "dofile",   "getmetatable",   "io",        "load",
        "loadfile", "next",           "os",        "package",
        "pcall",    "print",          "rawequal",  "rawget",
        "rawlen",   "rawset",         "require",   "setmetatable",
        "utf8",     "warn",           "xpcall"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return 1;
    return 0;
}

/* Parameters and locals of the function that runs, and its upvalues. */
static void try_locals(lua_State *L, struct qg_nearest *nearest)
{
    lua_Debug debug;
    const char *name;

    if (!lua_getstack(L, 1, &debug))
        return;
    for (int i = 1; (name = lua_getlocal(L, &debug, i)); i++) {
        lua_pop(L, 1);
        if (name[0] != '(')
            qg_nearest_try(nearest, name);
    }
    lua_getinfo(L, "f", &debug);
    for (int i = 1; (name = lua_getupvalue(L, -1, i)); i++) {
        lua_pop(L, 1);
        if (name[0] && name[0] != '(' && strcmp(name, "_ENV"))
            qg_nearest_try(nearest, name);
    }
    lua_pop(L, 1);
}

/* Activations are code: a spec chooses among them. */
static const char about_activation[] =
    "activations are built in:" QUERN_ACTIVATIONS(
        QG_WORD) "; a kernels "
                 "statement lists those of its template: axis \"activation\" { "
                 "... }";

/* The remedy for a name that resembles no other. */
static const char *otherwise(lua_State *L, const char *name, char *buffer,
                             size_t size)
{
    if (!strcmp(name, "activation"))
        return about_activation;
    if (qg_sandbox_owner(L)->rendering) {
        snprintf(buffer, size,
                 "an axis or a derive of its kernels statement "
                 "gives a template its values");
    } else if (qg_sandbox_owner(L)->tracing) {
        snprintf(buffer, size, "a rule has: %s", qg_sandbox_owner(L)->calls);
    } else {
        snprintf(buffer, size,
                 "declare it first: local %.40s; or is it a text:"
                 " \"%.40s\"?",
                 name, name);
    }
    return buffer;
}

/* Stack: env, name. Upvalues: the tables to look into. */
static int on_name(lua_State *L)
{
    struct qg_nearest nearest;
    const char *name;
    char buffer[400];

    for (int i = 1; i <= 2; i++) {
        if (!lua_istable(L, lua_upvalueindex(i)))
            continue;
        lua_pushvalue(L, 2);
        lua_rawget(L, lua_upvalueindex(i));
        if (!lua_isnil(L, -1))
            return 1;
        lua_pop(L, 1);
    }
    name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    if (is_of_lua(name))
        return qg_diag_raise(L, QG_E_NOT_OFFERED, name);
    qg_nearest_start(&nearest, name);
    for (int i = 1; i <= 2; i++) {
        if (!lua_istable(L, lua_upvalueindex(i)))
            continue;
        lua_pushnil(L);
        while (lua_next(L, lua_upvalueindex(i))) {
            lua_pop(L, 1);
            qg_nearest_try(&nearest, lua_tostring(L, -1));
        }
    }
    try_locals(L, &nearest);
    if (!strcmp(name, "activation")) /* the list of them is no statement */
        qg_nearest_start(&nearest, name);
    return qg_diag_raise(
        L, QG_E_UNDEFINED, name,
        qg_nearest_hint(&nearest, "",
                        otherwise(L, name, buffer, sizeof buffer)));
}

/* A global of one file would be seen by the next, in an unspecified order. */
static int on_assignment(lua_State *L)
{
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";

    return qg_diag_raise(L, QG_E_ASSIGNED, name, name);
}

void qg_sandbox_env(lua_State *L)
{
    lua_pushcclosure(L, on_name, 2);
    lua_newtable(L); /* the environment: stays empty */
    lua_createtable(L, 0, 2);
    lua_rotate(L, -3, -1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, on_assignment);
    lua_setfield(L, -2, "__newindex");
    lua_setmetatable(L, -2);
}

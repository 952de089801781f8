/*
** sandbox.c: what specs and templates can reach, and for how long.
**
** The environment holds a list of names and nothing else: whatever can hang
** (patterns, string.rep, table.move, sort), look outside (io, os, load) or
** undo the rest (metatables, raw access, pcall) is not in it. Steps of the
** interpreter are counted by a hook, memory by the allocator (mem.c); what
** takes long inside one step is charged for.
*/
#include "qg.h"

#include <dirent.h>
#include <locale.h>
#include <lua5.4/lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct qg *qg_sandbox_owner(lua_State *L)
{
    void *q;

    lua_getallocf(L, &q);
    return q;
}

/* ------------------------------------------------------------------ bounds */

static long long processor_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The hook that looks at the bounds, every QG_STEP instructions. */
void qg_sandbox_count(lua_State *L, lua_Debug *debug)
{
    struct qg *q = qg_sandbox_owner(L);

    (void)debug;
    q->left -= QG_STEP;
    q->total -= QG_STEP;
    if (processor_time() > q->deadline)
        q->total = -1;
    if (q->left < 0 || q->total < 0)
        qg_diag_raise(L, QG_E_STEPS, (long long)QG_CALL_STEPS);
}

/* What takes as long as so many instructions, and is none. Raises. */
void qg_sandbox_charge(lua_State *L, long long steps)
{
    struct qg *q = qg_sandbox_owner(L);

    q->left -= steps;
    q->total -= steps;
    if (q->left < 0 || q->total < 0)
        qg_diag_raise(L, QG_E_STEPS, (long long)QG_CALL_STEPS);
}

/* ------------------------------------------------------------------ errors */

/* "12:34: text", as Lua begins its messages: file and line. */
static const char *split_message(const char *text, struct qg_place *place)
{
    int file, line, used = 0;

    if (text[0] >= '0' && text[0] <= '9' &&
        sscanf(text, "%9d:%9d: %n", &file, &line, &used) == 2 && used) {
        *place = (struct qg_place){file, line};
        return text + used;
    }
    return text;
}

/* The innermost line of a spec or template that runs; file -1 if none does. */
struct qg_place qg_sandbox_place(lua_State *L)
{
    lua_Debug debug;

    for (int level = 0; lua_getstack(L, level, &debug); level++) {
        lua_getinfo(L, "Sl", &debug);
        if (debug.source[0] == '@' && debug.currentline > 0)
            return (struct qg_place){atoi(debug.source + 1), debug.currentline};
    }
    return (struct qg_place){-1, 0};
}

/* pcall's handler; the stack has not been unwound yet. Allocates nothing. */
static int on_error(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);

    if (!q->fault)
        q->where = qg_sandbox_place(L);
    return 1;
}

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && !strcmp(text + length - tail, end);
}

/* What Lua writes for a sign of other languages that it stumbles over. */
static const char *sign_of_lua(const char *text)
{
    static const struct {
        const char *end, *hint;
    } signs[] = {
        {"near '!'", "; Lua has ~= and not, a rule ~eq(a, b)"},
        {"near '?'", "; a rule has select(condition, x, y)"},
        {"near '&'", "; Lua has 'and', a rule a & b"},
        {"near '|'", "; Lua has 'or', a rule a | b"},
    };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (ends_with(text, signs[i].end))
            return signs[i].hint;
    return strstr(text, "'}' expected") ? "; is a comma missing before it?"
                                        : "";
}

/* Lua's own words, with what would be right where they do not say it. */
static void note_text(struct qg *q, struct qg_place place, const char *text)
{
    char names[512];

    if (strstr(text, "got value of a rule")) {
        qg_trace_call_names(names, sizeof names);
        qg_diag_note(q, place, QG_E_NOT_VALUES, text, names);
    } else if (strstr(text, "C stack overflow") ||
               strstr(text, "too many C levels")) {
        qg_diag_note(q, place, QG_E_TOO_DEEP);
    } else {
        qg_diag_note(q, place, QG_E_LUA,
                     qg_mem_print(q, "%s%s", text, sign_of_lua(text)));
    }
}

/* Note what went wrong in the spec's code; the message is on the stack. */
static void note_failure(struct qg *q, int status, struct qg_place place)
{
    const char *text = lua_tostring(q->L, -1);

    if (q->noted)
        return;
    if (status == LUA_ERRMEM && q->refused == QG_LONG_STRING) {
        qg_diag_note(q, place, QG_E_STRING, QG_MAX_STRING);
    } else if (status == LUA_ERRMEM) {
        qg_diag_note(q, place, QG_E_MEMORY, q->bound);
    } else if (!text) {
        qg_diag_note(q, place, QG_E_NOT_TEXT, qg_word_kind_of(q->L, -1));
    } else {
        text = split_message(text, &place);
        if (place.file < 0 || place.file >= q->nfiles)
            place = (struct qg_place){-1, 0};
        note_text(q, place, text);
    }
}

/* After a failed call: note it, or go on unwinding. */
static void handle(struct qg *q, int status, struct qg_place place)
{
    if (status == LUA_ERRMEM && !q->refused)
        q->fault = QG_NO_MEMORY;
    if (q->fault)
        lua_error(q->L);
    note_failure(q, status, q->where.file >= 0 ? q->where : place);
    lua_pop(q->L, 1);
    if (q->total < 0) {
        q->fault = QG_STOPPED;
        lua_error(q->L);
    }
}

/*
** Call a function of a spec or template, its arguments are on the stack.
** Returns 0; or 1 when an error has been noted, at the line that ran or else
** at `place`, and nothing is left on the stack.
*/
int qg_sandbox_call(struct qg *q, int arguments, int results,
                    struct qg_place place)
{
    lua_State *L = q->L;
    int base = lua_gettop(L) - arguments, status;

    luaL_checkstack(L, 10, NULL);
    lua_pushcfunction(L, on_error);
    lua_insert(L, base);
    q->left = QG_CALL_STEPS;
    q->refused = QG_GRANTED;
    q->noted = 0;
    q->where = (struct qg_place){-1, 0};
    status = lua_pcall(L, arguments, results, base);
    lua_remove(L, base);
    if (status == LUA_OK)
        return 0;
    handle(q, status, place);
    return 1;
}

/* Compile text, never bytecode. Pushes the function and returns 0, or 1. */
int qg_sandbox_load(struct qg *q, int file, const char *text, size_t length)
{
    struct qg_place place = {file, 1};
    char name[16];
    int status;

    if (length && text[0] == LUA_SIGNATURE[0]) {
        qg_diag_note(q, place, QG_E_BINARY);
        return 1;
    }
    snprintf(name, sizeof name, "@%d", file);
    q->refused = QG_GRANTED;
    q->noted = 0;
    q->where = (struct qg_place){-1, 0};
    status = luaL_loadbufferx(q->L, text, length, name, "t");
    if (status == LUA_OK)
        return 0;
    handle(q, status, place);
    return 1;
}

struct work {
    void (*run)(struct qg *, void *);
    void *argument;
};

/* The function that lua_pcall runs. */
static int run_work(lua_State *L)
{
    struct work *work = lua_touserdata(L, 1);

    work->run(qg_sandbox_owner(L), work->argument);
    return 0;
}

/*
** An error outside any spec: a C stack that is too deep, or more points than
** the bound on memory holds.
*/
static void note_unexpected(struct qg *q, void *text)
{
    q->rendering = NULL;
    if (!text) {
        qg_diag_note(q, (struct qg_place){-1, 0}, QG_E_MEMORY, q->bound);
        return;
    }
    qg_diag_note(q, (struct qg_place){-1, 0}, QG_E_LUA, text);
}

/* Returns 1 when an error has to be noted, its message on the stack. */
static int protect(struct qg *q, struct work *work)
{
    int status;

    lua_settop(q->L, 0);
    q->fault = QG_FINE;
    lua_pushcfunction(q->L, run_work);
    lua_pushlightuserdata(q->L, work);
    q->refused = QG_GRANTED;
    status = lua_pcall(q->L, 1, 0, 0);
    if (q->folder)
        closedir(q->folder);
    q->folder = NULL;
    if (status != LUA_ERRMEM)
        q->refused = QG_GRANTED;
    else if (q->refused != QG_TOO_MUCH)
        q->fault = QG_NO_MEMORY;
    return status != LUA_OK && !q->fault;
}

/*
** Run the generator's own code so that whatever fails unwinds to here.
** Returns 1 if errors were noted or memory ran out (q->fault says so).
** Numbers are read and written, and texts compared, as in the C locale.
*/
int qg_sandbox_protect(struct qg *q, void (*run)(struct qg *, void *),
                       void *argument)
{
    struct work work = {run, argument};
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(c);

    q->total = q->steps;
    q->deadline = processor_time() + QG_MAX_SECONDS * 1000000000LL;
    if (protect(q, &work)) {
        const char *message = lua_tostring(q->L, -1);
        char text[512];
        struct work note = {note_unexpected, q->refused ? NULL : text};

        snprintf(text, sizeof text, "%s", message ? message : "?");
        protect(q, &note);
    }
    q->rendering = NULL;
    uselocale(before);
    if (c)
        freelocale(c);
    return q->errors || q->fault;
}

/* ------------------------------------------------------------- environment */

/* What a programmer of Lua would look for in vain. */
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

/* Parameters and locals of the function that runs, and what it encloses. */
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

/* What to do about a name that resembles no other. */
static const char *otherwise(lua_State *L, const char *name, char *buffer,
                             size_t size)
{
    if (qg_sandbox_owner(L)->rendering) {
        snprintf(buffer, size,
                 "an axis or a derive of its kernels statement "
                 "gives a template its values");
    } else if (qg_sandbox_owner(L)->tracing) {
        int used = snprintf(buffer, size, "a rule has: ");

        qg_trace_call_names(buffer + used, size - (size_t)used);
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
    return qg_diag_raise(
        L, QG_E_UNDEFINED, name,
        qg_nearest_hint(&nearest, "",
                        otherwise(L, name, buffer, sizeof buffer)));
}

/*
** A global of one file would be seen by the next, in an order that nobody
** chose.
*/
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

/* math without what depends on the machine's libm, or on chance. */
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

/* Into the table on top: what specs and templates share. */
static void build_common(struct qg *q)
{
    build_base(q->L);
    build_math(q->L);
    build_string(q->L);
    build_table(q->L);
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
void qg_sandbox_build(struct qg *q)
{
    lua_State *L = q->L;

    lua_sethook(L, qg_sandbox_count, LUA_MASKCOUNT, QG_STEP);
    qg_frozen_build(L);
    lua_newtable(L);
    build_common(q);
    qg_types_build(q);
    qg_trace_build(q);
    qg_word_build(q);
    lua_pushnil(L);
    qg_sandbox_env(L);
    q->env = luaL_ref(L, LUA_REGISTRYINDEX);
    build_template_globals(q);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** sandbox.c: calling the code of specs and templates, with bounds.
**
** Steps of the interpreter are counted by a hook, memory by the allocator
** (mem.c); long work inside one step is charged for. globals.c has the names
** that they can reach.
*/
#include "lua/base.h"

#include <dirent.h>
#include <locale.h>
#include <stdio.h>
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

/* Charge for work that takes as long as so many instructions. Raises. */
void qg_sandbox_charge(lua_State *L, long long steps)
{
    struct qg *q = qg_sandbox_owner(L);

    q->left -= steps;
    q->total -= steps;
    if (q->left < 0)
        qg_diag_raise(L, QG_E_STEPS, (long long)QG_CALL_STEPS);
    if (q->total < 0)
        qg_diag_raise(L, QG_E_ALL_STEPS, q->steps);
}

/* The hook that looks at the bounds, every QG_STEP instructions. */
void qg_sandbox_count(lua_State *L, lua_Debug *debug)
{
    (void)debug;
    if (processor_time() > qg_sandbox_owner(L)->deadline)
        qg_diag_raise(L, QG_E_SECONDS, (int)QG_MAX_SECONDS);
    qg_sandbox_charge(L, QG_STEP);
}

/* ------------------------------------------------------------------ errors */

/* "12:34: text", as Lua begins its messages: file and line. */
static const char *split_message(const char *text, struct qg_location *location)
{
    int file, line, used = 0;

    if (text[0] >= '0' && text[0] <= '9' &&
        sscanf(text, "%9d:%9d: %n", &file, &line, &used) == 2 && used) {
        *location = (struct qg_location){file, line};
        return text + used;
    }
    return text;
}

/* pcall's handler; the stack has not been unwound yet. Allocates nothing. */
static int on_error(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);

    if (!q->fault)
        q->where = qg_sandbox_location(L);
    return 1;
}

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && !strcmp(text + length - tail, end);
}

/* Lua's operators for those of other languages. */
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

/* Lua's own words, with the remedy where they lack it. */
static void note_text(struct qg *q, struct qg_location location,
                      const char *text)
{
    if (strstr(text, "got value of a rule")) {
        qg_diag_note(q, location, QG_E_NOT_VALUES, text, q->calls);
    } else if (strstr(text, "C stack overflow") ||
               strstr(text, "too many C levels")) {
        qg_diag_note(q, location, QG_E_TOO_DEEP);
    } else {
        qg_diag_note(q, location, QG_E_LUA,
                     qg_mem_print(q, "%s%s", text, sign_of_lua(text)));
    }
}

/* Report the error of the spec's code; the message is on the stack. */
static void note_failure(struct qg *q, int status, struct qg_location location)
{
    const char *text = lua_tostring(q->L, -1);

    if (q->noted)
        return;
    if (status == LUA_ERRMEM && q->refused == QG_LONG_STRING) {
        qg_diag_note(q, location, QG_E_STRING, QG_MAX_STRING);
    } else if (status == LUA_ERRMEM) {
        qg_diag_note(q, location, QG_E_MEMORY, q->bound);
    } else if (!text) {
        qg_diag_note(q, location, QG_E_NOT_TEXT, qg_object_kind(q->L, -1));
    } else {
        text = split_message(text, &location);
        if (location.file < 0 || location.file >= q->nfiles)
            location = (struct qg_location){-1, 0};
        note_text(q, location, text);
    }
}

/* After a failed call: note it, or go on unwinding. */
static void handle(struct qg *q, int status, struct qg_location location)
{
    if (status == LUA_ERRMEM && !q->refused)
        q->fault = QG_NO_MEMORY;
    if (q->fault)
        lua_error(q->L);
    note_failure(q, status, q->where.file >= 0 ? q->where : location);
    lua_pop(q->L, 1);
    if (q->total < 0) {
        q->fault = QG_STOPPED;
        lua_error(q->L);
    }
}

/* Call a function of a spec or template, its arguments are on the stack.
   Returns 0; or 1 when an error has been noted, at the line that ran or else
   at `place`, and nothing is left on the stack. */
int qg_sandbox_call(struct qg *q, int arguments, int results,
                    struct qg_location location)
{
    lua_State *L = q->L;
    int base = lua_gettop(L) - arguments, status;

    luaL_checkstack(L, 10, NULL);
    lua_pushcfunction(L, on_error);
    lua_insert(L, base);
    q->left = QG_CALL_STEPS;
    q->refused = QG_GRANTED;
    q->noted = 0;
    q->where = (struct qg_location){-1, 0};
    status = lua_pcall(L, arguments, results, base);
    lua_remove(L, base);
    if (status == LUA_OK)
        return 0;
    handle(q, status, location);
    return 1;
}

/* Compile text, never bytecode. Pushes the function and returns 0, or 1. */
int qg_sandbox_load(struct qg *q, int file, const char *text, size_t length)
{
    struct qg_location location = {file, 1};
    char name[16];
    int status;

    if (length && text[0] == LUA_SIGNATURE[0]) {
        qg_diag_note(q, location, QG_E_BINARY);
        return 1;
    }
    snprintf(name, sizeof name, "@%d", file);
    q->refused = QG_GRANTED;
    q->noted = 0;
    q->where = (struct qg_location){-1, 0};
    status = luaL_loadbufferx(q->L, text, length, name, "t");
    if (status == LUA_OK)
        return 0;
    handle(q, status, location);
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

/* An error outside any spec: a C stack that is too deep, or more points than
   the bound on memory holds. */
static void note_unexpected(struct qg *q, void *text)
{
    q->rendering = NULL;
    if (!text) {
        qg_diag_note(q, (struct qg_location){-1, 0}, QG_E_MEMORY, q->bound);
        return;
    }
    qg_diag_note(q, (struct qg_location){-1, 0}, QG_E_LUA, text);
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

/* Run the generator's own code so that each failure unwinds to here.
   Returns 1 if errors were noted or memory ran out (q->fault says so).
   Values are read and written, and texts compared, as in the C locale. */
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

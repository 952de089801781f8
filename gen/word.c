/*
** word.c: the words of the spec language.
**
** Each is a row below: `recipe "bf16" { ... }` calls recipe with the name, and
** what that returns with the table. Both steps note errors rather than raise
** them, so that one run shows all. A word that never gets its second part, or
** whose value is put nowhere, is an error at the end of its file.
*/
#include "qg.h"

#include <string.h>

static const struct qg_word_kind kinds[] = {
    {"recipe", QG_IDENTIFIER, 0, qg_recipe_take,
     "recipe \"name\" { element = ..., d = ... }",
     "how each operand is quantized"},
    {"layout", QG_IDENTIFIER, 0, qg_layout_take,
     "layout \"name\" { a = \"k\", b = \"k\" }",
     "which axis of A and B is contiguous"},
    {"ragged", QG_IDENTIFIER, 0, qg_ragged_take,
     "ragged \"m\" { a = \"m\", d = \"m\" }",
     "which axis differs by group, in which operands"},
    {"storage", QG_IDENTIFIER, 0, qg_storage_take,
     "storage \"name\" { order = \"rows\" }", "how scales lie in memory"},
    {"kernels", QG_IDENTIFIER, 0, qg_kernels_take,
     "kernels \"name\" { op = ..., template = ..., axis ... }",
     "a grid of kernels from one template"},
    {"shipped", QG_UNNAMED, 0, qg_shipped_take,
     "shipped { \"quern_...\", ... }", "kernels that are built ahead of time"},
    {"blocked", QG_UNNAMED, 1, qg_blocked_take,
     "blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of) ... "
     "}",
     "a scale for each block of values"},
    {"axis", QG_IDENTIFIER, 1, qg_axis_take,
     "axis \"name\" { value, value, ... }",
     "choices that make one kernel each"},
    {"derive", QG_IDENTIFIER, 1, qg_derive_take,
     "derive \"name\" (function (v) return ... end)",
     "a value that follows from those before it"},
    {"requires", QG_SENTENCE, 1, qg_requires_take,
     "requires \"k % 8 == 0\" \"reason\"",
     "a rule on the problem, and the sentence that says why"},
    {"reject", QG_SENTENCE, 1, qg_reject_take,
     "reject \"reason\" (function (v) return ... end)",
     "points of the grid that make no kernel"},
};

enum { COUNT = sizeof kinds / sizeof *kinds };

const struct qg_word_kind *qg_word_kind(int index)
{
    return index < COUNT ? &kinds[index] : NULL;
}

const char *qg_word_usage(const char *word)
{
    int i = 0;

    while (strcmp(kinds[i].word, word))
        i++;
    return kinds[i].usage;
}

/* [a-z][a-z0-9_]*, at most `bound` long: safe in code, comments and paths. */
int qg_word_identifier(const char *text, size_t bound)
{
    size_t length = strlen(text);

    return length && length <= bound && text[0] >= 'a' && text[0] <= 'z' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

/* Sentences reach messages and tables: one line, of a length to read. */
int qg_word_sentence(const char *text)
{
    size_t length = strlen(text);

    if (!length || length > 200)
        return 0;
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127)
            return 0;
    return 1;
}

/* A use of a word, at the line that is running. */
static struct qg_word *start(struct qg *q, const struct qg_word_kind *kind)
{
    struct qg_word *word = qg_mem_new(q, sizeof *word);

    word->kind = kind;
    word->place = qg_sandbox_place(q->L);
    word->next = q->words;
    q->words = word;
    return word;
}

/* Stack: the value. Upvalue: the word. */
static int second_part(lua_State *L)
{
    struct qg_word *word = lua_touserdata(L, lua_upvalueindex(1));

    word->done = 1;
    lua_settop(L, 1);
    return word->kind->take(qg_sandbox_owner(L), word);
}

/* One error is enough: what a badly named word is for is not looked at. */
static void drop(struct qg_word *word)
{
    word->done = word->used = 1;
}

static void check_name(struct qg *q, struct qg_word *word)
{
    const struct qg_word_kind *kind = word->kind;
    int is_text = lua_type(q->L, 1) == LUA_TSTRING;
    const char *text = is_text ? lua_tostring(q->L, 1) : "";
    int whole = !is_text || strlen(text) == lua_rawlen(q->L, 1);

    word->name = qg_mem_string(q, text, strlen(text));
    if (!is_text) {
        drop(word);
        qg_diag_note(q, word->place, QG_E_NAME_KIND, kind->word, kind->usage);
    } else if (kind->named == QG_IDENTIFIER &&
               (!whole || !qg_word_identifier(text, QG_MAX_NAME))) {
        drop(word);
        qg_diag_note(q, word->place, QG_E_NAME_FORM, text, kind->word,
                     QG_MAX_NAME);
    } else if (kind->named == QG_SENTENCE &&
               (!whole || !qg_word_sentence(text))) {
        drop(word);
        qg_diag_note(q, word->place, QG_E_SENTENCE, kind->word, kind->usage);
    }
}

/* Stack: the name, or the value of a word without one. Upvalue: the kind. */
static int first_part(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);
    const struct qg_word_kind *kind = lua_touserdata(L, lua_upvalueindex(1));
    struct qg_word *word;

    if (!q->loading)
        return qg_diag_raise(L, QG_E_LATE, kind->word);
    word = start(q, kind);
    lua_settop(L, 1);
    if (word->kind->named == QG_UNNAMED) {
        word->name = "";
        word->done = 1;
        return word->kind->take(q, word);
    }
    check_name(q, word);
    lua_pushlightuserdata(L, word);
    lua_pushcclosure(L, second_part, 1);
    return 1;
}

/* Into the table on top. */
void qg_word_build(struct qg *q)
{
    luaL_newmetatable(q->L, QG_ITEM);
    luaL_newmetatable(q->L, QG_SCALE);
    lua_pop(q->L, 2);
    for (int i = 0; i < COUNT; i++) {
        lua_pushlightuserdata(q->L, (void *)&kinds[i]);
        lua_pushcclosure(q->L, first_part, 1);
        lua_setfield(q->L, -2, kinds[i].word);
    }
}

/* The list's order is that of use, the last one first. */
static struct qg_word *reversed(struct qg_word *words)
{
    struct qg_word *list = NULL;

    while (words) {
        struct qg_word *next = words->next;

        words->next = list;
        list = words;
        words = next;
    }
    return list;
}

/* What was begun and never used would otherwise be silence. */
void qg_word_finish(struct qg *q)
{
    struct qg_word *word = reversed(q->words);

    q->words = NULL;
    for (; word; word = word->next) {
        const struct qg_word_kind *kind = word->kind;

        if (!word->done)
            qg_diag_note(q, word->place, QG_E_UNFINISHED, kind->word,
                         kind->usage);
        else if (kind->is_part && !word->used)
            qg_diag_note(q, word->place, QG_E_UNUSED, kind->word, kind->usage);
    }
}

void qg_word_give(lua_State *L, void *part, const char *metatable)
{
    void **value = lua_newuserdatauv(L, sizeof *value, 0);

    *value = part;
    luaL_setmetatable(L, metatable);
}

void *qg_word_part(lua_State *L, int index, const char *metatable)
{
    void **value = luaL_testudata(L, index, metatable);

    return value ? *value : NULL;
}

const char *qg_word_print(struct qg *q, const struct qg_word *word)
{
    if (!*word->name)
        return word->kind->word;
    return qg_mem_print(q, "%s '%s'", word->kind->word, word->name);
}

/*
** Both places are named: either may be the one to change. The statement's parts
** were made before it: that they are used nowhere now is no second error.
*/
int qg_word_taken(struct qg *q, const struct qg_word *word,
                  struct qg_place before)
{
    for (struct qg_word *part = q->words; part; part = part->next)
        part->used = 1;
    qg_diag_note(q, word->place, QG_E_TWICE, word->kind->word, word->name,
                 qg_files_print(q, before));
    return 1;
}

int qg_word_function(struct qg *q, const struct qg_word *word)
{
    lua_State *L = q->L;

    if (lua_type(L, 1) == LUA_TFUNCTION) {
        lua_pushvalue(L, 1);
        return luaL_ref(L, LUA_REGISTRYINDEX);
    }
    qg_diag_note(q, word->place, QG_E_ITEM_FUNCTION, word->kind->word,
                 qg_word_kind_of(L, 1), word->kind->usage);
    return 0;
}

/* The userdata that is none of ours by kind is a frozen table. */
const char *qg_word_kind_of(lua_State *L, int index)
{
    static const char *const names[] = {
        [LUA_TNIL] = "nil",         [LUA_TBOOLEAN] = "a boolean",
        [LUA_TNUMBER] = "a number", [LUA_TSTRING] = "a text",
        [LUA_TTABLE] = "a table",   [LUA_TFUNCTION] = "a function",
        [LUA_TUSERDATA] = "a table"};
    int type = lua_type(L, index);

    if (qg_types_check(L, index))
        return "a type";
    if (qg_trace_is(L, index))
        return "a value of a rule";
    if (qg_word_part(L, index, QG_SCALE))
        return "a scale";
    if (qg_word_part(L, index, QG_ITEM))
        return "an entry of a kernels list";
    return type >= 0 && type <= LUA_TUSERDATA && names[type] ? names[type]
                                                             : "something else";
}

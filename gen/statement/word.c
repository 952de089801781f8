/* SPDX-License-Identifier: Apache-2.0 */
/*
** word.c: a use of one of the spec language's words.
**
** `recipe "bf16" { ... }` calls recipe with the name, and the function that
** this returns with the table. Both steps note errors rather than raise them,
** so that one run shows all. A word that never gets its second part, or whose
** value is put nowhere, is an error at the end of its file.
*/
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

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

/* Bounds the statements that a loop declares, long before its time runs out.
   Raises. */
static void count(struct qg *q, const struct qg_word_kind *kind)
{
    if (++q->uses > QG_MAX_WORDS)
        qg_diag_raise(q->L, QG_E_MANY, QG_MAX_WORDS, "entries");
    if (!kind->is_part && ++q->statements > QG_MAX_STATEMENTS)
        qg_diag_raise(q->L, QG_E_MANY, QG_MAX_STATEMENTS, "statements");
    if (!strcmp(kind->word, "recipe") && ++q->nrecipes > QG_MAX_RECIPES)
        qg_diag_raise(q->L, QG_E_MANY, QG_MAX_RECIPES, "recipes");
}

/* A use of a word, at the line that is running. */
static struct qg_word *start(struct qg *q, const struct qg_word_kind *kind)
{
    struct qg_word *word = qg_mem_new(q, sizeof *word);

    word->kind = kind;
    word->location = qg_sandbox_location(q->L);
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

/* One error is enough: the arguments of a badly named word are not checked. */
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
        qg_diag_note(q, word->location, QG_E_NAME_KIND, kind->word,
                     kind->usage);
    } else if (kind->named == QG_IDENTIFIER &&
               (!whole || !qg_word_identifier(text, QG_MAX_NAME))) {
        drop(word);
        qg_diag_note(q, word->location, QG_E_NAME_FORM, text, kind->word,
                     QG_MAX_NAME);
    } else if (kind->named == QG_SENTENCE &&
               (!whole || !qg_word_sentence(text))) {
        drop(word);
        qg_diag_note(q, word->location, QG_E_SENTENCE, kind->word, kind->usage);
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
    count(q, kind);
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

void qg_word_add(lua_State *L, const struct qg_word_kind *kind)
{
    lua_pushlightuserdata(L, (void *)kind);
    lua_pushcclosure(L, first_part, 1);
    lua_setfield(L, -2, kind->word);
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

/* A statement begun and never used would otherwise go unreported. */
void qg_word_finish(struct qg *q)
{
    struct qg_word *word = reversed(q->words);

    q->words = NULL;
    for (; word; word = word->next) {
        const struct qg_word_kind *kind = word->kind;

        if (!word->done)
            qg_diag_note(q, word->location, QG_E_UNFINISHED, kind->word,
                         kind->usage);
        else if (kind->is_part && !word->used)
            qg_diag_note(q, word->location, QG_E_UNUSED, kind->word,
                         kind->usage);
    }
}

const char *qg_word_print(struct qg *q, const struct qg_word *word)
{
    if (!*word->name)
        return word->kind->word;
    return qg_mem_print(q, "%s '%s'", word->kind->word, word->name);
}

const struct qg_word *qg_word_declared(const struct qg *q, const char *word,
                                       const char *name)
{
    const struct qg_word *at = q->declared;

    while (at && (strcmp(at->kind->word, word) || strcmp(at->name, name)))
        at = at->before;
    return at;
}

/* Both locations are named: either may be the one to change. The statement's
   parts were made before it: that they are used nowhere now is no second
   error. */
int qg_word_taken(struct qg *q, const struct qg_word *word)
{
    const struct qg_word *other =
        qg_word_declared(q, word->kind->word, word->name);

    if (!other)
        return 0;
    for (struct qg_word *part = q->words; part; part = part->next)
        part->used = 1;
    qg_diag_note(q, word->location, QG_E_TWICE, word->kind->word, word->name,
                 qg_files_print(q, other->location));
    return 1;
}

void qg_word_declare(struct qg *q, struct qg_word *word, const void *statement)
{
    word->declared = statement;
    word->before = q->declared;
    q->declared = word;
}

int qg_word_function(struct qg *q, const struct qg_word *word)
{
    lua_State *L = q->L;

    if (lua_type(L, 1) == LUA_TFUNCTION) {
        lua_pushvalue(L, 1);
        return luaL_ref(L, LUA_REGISTRYINDEX);
    }
    qg_diag_note(q, word->location, QG_E_ITEM_FUNCTION, word->kind->word,
                 qg_object_kind(L, 1), word->kind->usage);
    return 0;
}

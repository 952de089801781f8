/* SPDX-License-Identifier: Apache-2.0 */
/*
** condition.c: conditions of a rule while it is traced.
**
** Lua gives no hand on `if`, `and`, `or`, `not`, nor on == between a value of a
** rule and a number. So a file that declares scales is compiled with a call
** around each operand of these:
**
**     if c then           if __if(c) then
**     a and b             __and(a) and b          likewise or
**     not a               not __not^a             which binds closer than not
**     a == b, a ~= b      __eq(a) <= b, __eq(a) < b
**
** These let constants pass, and refuse values that only the device knows. An
** operand begins where its expression does, or after `and` or `or`: all other
** operators bind closer, and == and ~= as < and <= do.
*/
#include "lua/base.h"
#include "rule/trace.h"

#include <stdlib.h>
#include <string.h>

#define NOT "__not"
#define EQ  "__eq"

enum { DEEPEST = 512 }; /* Lua itself takes 200 */

static const struct {
    const char *word, *name, *instead;
} words[] = {
    {"if", "__if", "select(condition, x, y)"},
    {"and", "__and", "a & b"},
    {"or", "__or", "a | b"},
    {"not", NOT, "~a"},
    {"==", EQ, "eq(a, b), with select(condition, x, y) for a choice"},
    {"~=", EQ, "~eq(a, b), with select(condition, x, y) for a choice"},
};

enum { IF, AND, OR, NOT_, EQUAL, UNEQUAL, WORDS };

/* ------------------------------------------------------- while a rule runs */

/* The value at `index` must be no value of a rule. Every number is true in
   Lua, so that one may be the x of `constant and x or y`. */
static void refuse(lua_State *L, int index, int word)
{
    const struct qg_node *node = qg_trace_at(L, index);

    if (node && (word != OR || node->kind == QG_CHOICE))
        qg_diag_raise(L, QG_E_RULE_WORD, "", words[word].word,
                      words[word].instead);
}

/* Upvalue: the word. Stack: its operand, which is given back. */
static int check(lua_State *L)
{
    lua_settop(L, 1);
    refuse(L, 1, (int)lua_tointeger(L, lua_upvalueindex(1)));
    return 1;
}

/* Stack: NOT's value, and its operand. */
static int check_not(lua_State *L)
{
    refuse(L, 2, NOT_);
    lua_settop(L, 2);
    return 1;
}

/* Stack: the left operand, which waits for the right one. */
static int wait_right(lua_State *L)
{
    lua_settop(L, 1);
    lua_newuserdatauv(L, 0, 1);
    lua_insert(L, 1);
    lua_setiuservalue(L, 1, 1);
    luaL_setmetatable(L, EQ);
    return 1;
}

/* Upvalue: which of both. Stack: the left operand, kept, and the right. */
static int compare(lua_State *L)
{
    const int word = (int)lua_tointeger(L, lua_upvalueindex(1));

    luaL_checkudata(L, 1, EQ);
    lua_settop(L, 2);
    lua_getiuservalue(L, 1, 1);
    refuse(L, 3, word);
    refuse(L, 2, word);
    lua_pushboolean(L, lua_compare(L, 3, 2, LUA_OPEQ) == (word == EQUAL));
    return 1;
}

static void set_check(lua_State *L, lua_CFunction function, int word,
                      const char *name)
{
    lua_pushinteger(L, word);
    lua_pushcclosure(L, function, 1);
    lua_setfield(L, -2, name);
}

/* Into the table on top. */
void qg_condition_build(struct qg *q)
{
    lua_State *L = q->L;

    for (int word = IF; word <= OR; word++)
        set_check(L, check, word, words[word].name);
    lua_newuserdatauv(L, 0, 0);
    luaL_newmetatable(L, NOT);
    set_check(L, check_not, NOT_, "__pow");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, NOT);
    luaL_newmetatable(L, EQ);
    set_check(L, compare, EQUAL, "__le");
    set_check(L, compare, UNEQUAL, "__lt");
    lua_pop(L, 1);
    lua_pushcfunction(L, wait_right);
    lua_setfield(L, -2, EQ);
}

/* ----------------------------------------------------------- before it runs */

/* A text put in front of the character `at`. */
struct edit {
    size_t at;
    int order; /* of those at one character; 0: an end */
    const char *text, *more;
};

/* An expression, or the statements of a block: where the operand begins, and
   the condition of an `if`. */
struct level {
    size_t operand, condition;
};

struct pass {
    struct qg *q;
    const char *text;
    struct level levels[DEEPEST];
    int depth;
    int edits; /* in q->output */
};

static void add(struct pass *p, struct edit edit)
{
    qg_text_add(p->q, &p->q->output, (const char *)&edit, sizeof edit);
    p->edits++;
}

/* Around the text; a pair around more of it comes before. */
static void wrap(struct pass *p, size_t from, size_t to, int word)
{
    add(p, (struct edit){from, -p->edits - 1, words[word].name, "("});
    add(p, (struct edit){to, 0, ")", " "});
}

static int find_word(const struct qg_lex *lex)
{
    int word = 0;

    while (word < WORDS && !qg_lex_is(lex, words[word].word))
        word++;
    return word;
}

/* Keywords and signs after which another expression begins. */
static int begins(const struct qg_lex *lex)
{
    static const char *const all[] = {
        "if", "elseif", "then",  "else", "do", "while", "until", "repeat",
        "in", "return", "local", ",",    ";",  "=",     "and",   "or"};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (qg_lex_is(lex, all[i]))
            return 1;
    return 0;
}

/* One keyword or sign. */
static void take(struct pass *p, const struct qg_lex *lex)
{
    const size_t at = (size_t)(lex->start - p->text);
    const size_t end = at + (size_t)lex->length;
    const int word = find_word(lex), change = qg_lex_nesting(lex);
    struct level *level;

    p->depth += change;
    if (p->depth < 0 || p->depth >= DEEPEST)
        return;
    level = &p->levels[p->depth];
    if (change > 0)
        *level = (struct level){end, end};
    if (qg_lex_is(lex, "elseif"))
        level->condition = end;
    else if (qg_lex_is(lex, "then"))
        wrap(p, level->condition, at, IF);
    else if (word == NOT_)
        add(p, (struct edit){end, -p->edits - 1, words[word].name, "^"});
    else if (word < WORDS && word != IF)
        wrap(p, level->operand, at, word);
    if (begins(lex))
        level->operand = end;
}

static int by_place(const void *a, const void *b)
{
    const struct edit *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* The text with all edits, into q->chunk; == becomes <=, and ~= becomes <. */
static void put(struct pass *p, size_t length)
{
    struct qg *q = p->q;
    const struct edit *edits = (const struct edit *)(void *)q->output.data;
    size_t done = 0;

    qg_text_clear(&q->chunk);
    for (int i = 0; i < p->edits; i++) {
        const size_t at = edits[i].at;

        qg_text_add(q, &q->chunk, p->text + done, at - done);
        done = at;
        qg_text_put(q, &q->chunk, edits[i].order ? " " : "");
        qg_text_put(q, &q->chunk, edits[i].text);
        qg_text_put(q, &q->chunk, edits[i].more);
        if (!edits[i].order && length - at > 1 && p->text[at + 1] == '=') {
            qg_text_put(q, &q->chunk, p->text[at] == '=' ? "<=" : "< ");
            done += 2;
        }
    }
    qg_text_add(q, &q->chunk, p->text + done, length - done);
}

/* Only values of rules need it, and only `blocked` gets them. */
static int has_rules(const char *text, size_t length)
{
    struct qg_lex lex;

    qg_lex_start(&lex, text, length);
    while (qg_lex_next(&lex))
        if (lex.token == QG_NAME &&
            (qg_lex_is(&lex, "blocked") || qg_lex_is(&lex, "_ENV")))
            return 1;
    return 0;
}

int qg_condition_show(struct qg *q, const char *text, size_t length)
{
    struct pass p = {.q = q, .text = text};
    struct qg_lex lex;

    if (!has_rules(text, length))
        return 0;
    qg_text_clear(&q->output);
    qg_lex_start(&lex, text, length);
    while (qg_lex_next(&lex))
        if (lex.token == QG_KEYWORD || lex.token == QG_SIGN)
            take(&p, &lex);
    if (p.edits)
        qsort(q->output.data, (size_t)p.edits, sizeof(struct edit), by_place);
    put(&p, length);
    return p.edits;
}

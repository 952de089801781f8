/* SPDX-License-Identifier: Apache-2.0 */
/* axis.c: `axis "tile" { {128, 128, 64}, ... }`: choices of a kernels list. */
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

/* An integer that fits the descriptors. */
static int take_integer(lua_State *L, int *out)
{
    lua_Integer value;

    if (!lua_isinteger(L, -1))
        return 0;
    value = lua_tointeger(L, -1);
    if (value < 0 || value > 1 << 24)
        return 0;
    *out = (int)value;
    return 1;
}

/* The tuple on top of the stack; 0 if one of its elements is no integer. */
static int take_tuple(lua_State *L, struct qg_value *value)
{
    lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    int fine = count >= 1 && count <= QG_MAX_TUPLE && !qg_pairs_other(L, -1);

    value->tuple = 1;
    value->count = fine ? (int)count : 0;
    for (int i = 0; i < value->count; i++) {
        lua_rawgeti(L, -1, i + 1);
        fine &= take_integer(L, &value->at[i]);
        lua_pop(L, 1);
    }
    return fine;
}

/* The value on top of the stack; 0 if it is of no kind that an axis takes.
   A string becomes a part of the kernel's symbol, hence an identifier. */
static int take_value(struct qg *q, struct qg_value *value)
{
    const char *text;

    switch (lua_type(q->L, -1)) {
    case LUA_TSTRING:
        text = lua_tostring(q->L, -1);
        value->string = qg_mem_string(q, text, strlen(text));
        return qg_word_identifier(text, QG_MAX_NAME);
    case LUA_TNUMBER:
        value->count = 1;
        return take_integer(q->L, &value->at[0]);
    case LUA_TTABLE:
        return take_tuple(q->L, value);
    default:
        return 0;
    }
}

/* Two that print alike would give two kernels one name. */
static int equal(const struct qg_value *a, const struct qg_value *b)
{
    if (a->string || b->string)
        return a->string && b->string && !strcmp(a->string, b->string);
    return a->count == b->count &&
           !memcmp(a->at, b->at, (size_t)a->count * sizeof *a->at);
}

/* As the kernel's name has it: "128x64". */
static const char *print(struct qg *q, const struct qg_value *value)
{
    const char *text = value->string;

    for (int i = 0; !value->string && i < value->count; i++)
        text = text ? qg_mem_print(q, "%sx%d", text, value->at[i])
                    : qg_mem_print(q, "%d", value->at[i]);
    return text;
}

/* The value on top of the stack, for a message. */
static const char *describe(struct qg *q)
{
    const char *text;

    if (!lua_isstring(q->L, -1))
        return qg_object_kind(q->L, -1);
    lua_pushvalue(q->L, -1);
    text = qg_mem_print(q, "'%s'", lua_tostring(q->L, -1));
    lua_pop(q->L, 1);
    return text;
}

/* The list's entry on top of the stack. A wrong one is noted and left out, so
   that those after it are looked at too. */
static void take_entry(struct qg *q, struct qg_item *item, int index)
{
    struct qg_value *value = &item->values[item->count];

    memset(value, 0, sizeof *value);
    if (!take_value(q, value)) {
        qg_diag_note(q, item->word->location, QG_E_AXIS_VALUE, index,
                     item->name, describe(q));
        return;
    }
    for (int i = 0; i < item->count; i++)
        if (equal(value, &item->values[i])) {
            qg_diag_note(q, item->word->location, QG_E_AXIS_AGAIN, item->name,
                         print(q, value));
            return;
        }
    item->count++;
}

/* Stack index 1: the list of values. Gives the item, even an invalid one: the
   statement around it then says nothing more about it. */
int qg_axis_take(struct qg *q, struct qg_word *word)
{
    struct qg_item *item = qg_mem_new(q, sizeof *item);
    lua_Integer count = -1;
    const char *key = NULL;

    item->kind = QG_AXIS;
    item->word = word;
    item->name = word->name;
    if (lua_type(q->L, 1) == LUA_TTABLE) {
        count = (lua_Integer)lua_rawlen(q->L, 1);
        key = qg_pairs_other(q->L, 1);
    }
    if (key)
        qg_diag_note(q, word->location, QG_E_FIELD_LIST, qg_word_print(q, word),
                     key);
    else if (count < 1 || count > QG_MAX_VALUES)
        qg_diag_note(q, word->location, QG_E_AXIS_LIST, word->name,
                     QG_MAX_VALUES);
    else
        for (int i = 1; i <= (int)count; i++) {
            lua_rawgeti(q->L, 1, i);
            take_entry(q, item, i);
            lua_pop(q->L, 1);
        }
    qg_object_push(q->L, item, QG_ITEM);
    return 1;
}

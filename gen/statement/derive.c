/* SPDX-License-Identifier: Apache-2.0 */
/* derive.c: `derive "stages" (function (v) ... end)`: a value of each point;
   `derive "threads" (256)`: the same for all. */
#include "lua/base.h"
#include "statement/word.h"

/* Stack index 1: the value, or a function that gives it when the grid's points
   are made (point.c). */
int qg_derive_take(struct qg *q, struct qg_word *word)
{
    struct qg_item *item = qg_mem_new(q, sizeof *item);

    item->kind = QG_DERIVE;
    item->word = word;
    item->name = word->name;
    item->constant =
        lua_type(q->L, 1) != LUA_TFUNCTION && lua_type(q->L, 1) != LUA_TNIL;
    if (item->constant) {
        lua_pushvalue(q->L, 1);
        item->function = luaL_ref(q->L, LUA_REGISTRYINDEX);
    } else {
        item->function = qg_word_function(q, word);
    }
    qg_object_push(q->L, item, QG_ITEM);
    return 1;
}

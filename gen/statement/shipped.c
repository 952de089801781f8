/* SPDX-License-Identifier: Apache-2.0 */
/* shipped.c: `shipped { "quern_...", ... }`: kernels that are built ahead of
   time. Whether they exist is known once all points exist: shipped_mark.c. */
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

/* The entry on top of the stack. */
static void take_name(struct qg *q, const struct qg_word *word, int entry)
{
    struct qg_shipped *shipped;
    const char *name;

    if (lua_type(q->L, -1) != LUA_TSTRING) {
        qg_diag_note(q, word->location, QG_E_SHIPPED_LIST, entry,
                     qg_object_kind(q->L, -1));
        return;
    }
    name = lua_tostring(q->L, -1);
    shipped = qg_mem_new(q, sizeof *shipped);
    shipped->location = qg_lex_text(q, word->location, name);
    shipped->name = qg_mem_string(q, name, strlen(name));
    shipped->next = q->shipped;
    q->shipped = shipped;
}

/* Stack index 1: the list. May stand in several files: they add up. */
int qg_shipped_take(struct qg *q, struct qg_word *word)
{
    const char *key;
    int count;

    if (lua_type(q->L, 1) != LUA_TTABLE) {
        qg_diag_note(q, word->location, QG_E_SHIPPED_KIND,
                     qg_object_kind(q->L, 1));
        return 0;
    }
    key = qg_pairs_other(q->L, 1);
    if (key) {
        qg_diag_note(q, word->location, QG_E_FIELD_LIST, "shipped", key);
        return 0;
    }
    count = (int)lua_rawlen(q->L, 1);
    if (count > QG_MAX_SHIPPED) {
        qg_diag_note(q, word->location, QG_E_SHIPPED_COUNT, QG_MAX_SHIPPED);
        return 0;
    }
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(q->L, 1, i);
        take_name(q, word, i);
        lua_pop(q->L, 1);
    }
    return 0;
}

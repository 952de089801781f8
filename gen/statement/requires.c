/* SPDX-License-Identifier: Apache-2.0 */
/*
** requires.c: `requires "k % 8 == 0" "reason"`: a rule on the problem.
**
** The runtime evaluates the text for each problem with the same function that
** is tried here, so that a text which does not parse is an error of the spec.
*/
#include "lua/base.h"
#include "statement/word.h"

#include "base/expr.h"

#include <string.h>

/* Any sizes will do: with them, only a text that cannot be parsed fails. */
static void check(struct qg *q, const struct qg_item *item)
{
    const struct qn_expr_values values = {
        .m = 4096, .n = 2048, .k = 7168, .groups = 8};
    int64_t result;
    const char *error = qn_expr_eval(item->name, &values, &result);

    if (error)
        qg_diag_note(q, item->word->location, QG_E_REQUIRES_TEXT, item->name,
                     error);
}

/* Stack index 1: the sentence. The expression came as the word's name. */
int qg_requires_take(struct qg *q, struct qg_word *word)
{
    struct qg_item *item = qg_mem_new(q, sizeof *item);
    const char *reason =
        lua_type(q->L, 1) == LUA_TSTRING ? lua_tostring(q->L, 1) : "";

    item->kind = QG_REQUIRES;
    item->word = word;
    item->name = word->name;
    item->reason = qg_mem_string(q, reason, strlen(reason));
    if (!qg_word_sentence(reason))
        qg_diag_note(q, word->location, QG_E_SENTENCE, "requires",
                     word->kind->usage);
    if (!word->used) /* its name was not refused before */
        check(q, item);
    qg_object_push(q->L, item, QG_ITEM);
    return 1;
}

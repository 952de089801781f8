/* SPDX-License-Identifier: Apache-2.0 */
/*
** reject.c: `reject "reason" (function (v) ... end)`: points without a kernel.
*/
#include "lua/mem.h"
#include "lua/object.h"
#include "statement/word.h"

/*
** Stack index 1: the function. The sentence stays with the points that it
** rejects, for `quern why`.
*/
int qg_reject_take(struct qg *q, struct qg_word *word)
{
    struct qg_item *item = qg_mem_new(q, sizeof *item);

    item->kind = QG_REJECT;
    item->word = word;
    item->reason = word->name;
    item->function = qg_word_function(q, word);
    qg_object_push(q->L, item, QG_ITEM);
    return 1;
}

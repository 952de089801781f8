/* SPDX-License-Identifier: Apache-2.0 */
/* reject.c: `reject "reason" (function (v) ... end)`: points without a kernel;
   `without "a b" (function (v) ... end)`: kernels without these parameters. */
#include "lua/base.h"
#include "statement/word.h"

/* Stack index 1: the function. */
static int take(struct qg *q, struct qg_word *word, enum qg_item_kind kind)
{
    struct qg_item *item = qg_mem_new(q, sizeof *item);

    item->kind = kind;
    item->word = word;
    item->name = item->reason = word->name;
    item->function = qg_word_function(q, word);
    qg_object_push(q->L, item, QG_ITEM);
    return 1;
}

/* The sentence stays with the points that it rejects, for `quern why`. */
int qg_reject_take(struct qg *q, struct qg_word *word)
{
    return take(q, word, QG_REJECT);
}

int qg_reject_without(struct qg *q, struct qg_word *word)
{
    return take(q, word, QG_WITHOUT);
}

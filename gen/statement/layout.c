/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: `layout "tn" { a = "k", b = "k" }`: which axis is contiguous. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <stddef.h>
#include <string.h>

static const struct qg_field fields[] = {
    {"a", QG_F_NAME, 1, offsetof(struct qg_layout, a),
     QG_WORDS(QUERN_MAJORS(QG_WORD)), NULL, "the contiguous axis of A"},
    {"b", QG_F_NAME, 1, offsetof(struct qg_layout, b),
     QG_WORDS(QUERN_MAJORS(QG_WORD)), NULL, "the contiguous axis of B"},
};

const struct qg_fields qg_layout_fields = {
    "layout", fields, sizeof fields / sizeof *fields, 0, 0};

/* Stack index 1: the table. */
int qg_layout_take(struct qg *q, struct qg_word *word)
{
    struct qg_layout *layout = qg_mem_new(q, sizeof *layout);

    layout->name = word->name;
    if (qg_word_taken(q, word))
        return 0;
    if (qg_field_read(q, word, &qg_layout_fields, layout))
        return 0;
    qg_word_declare(q, word, layout);
    return 0;
}

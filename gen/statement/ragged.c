/* SPDX-License-Identifier: Apache-2.0 */
/* ragged.c: `ragged "m" { a = "m", d = "m" }`: the axis that differs by group.
   An operand that is not named has one matrix for each group. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <stddef.h>
#include <string.h>

#define AXES QG_WORDS(QUERN_AXES(QG_WORD))

static const struct qg_field fields[] = {
    {"a", QG_F_NAME, 0, offsetof(struct qg_ragged, a), AXES, NULL,
     "the axis of A that is split among the groups (default \"none\")"},
    {"b", QG_F_NAME, 0, offsetof(struct qg_ragged, b), AXES, NULL,
     "the axis of B"},
    {"d", QG_F_NAME, 0, offsetof(struct qg_ragged, d), AXES, NULL,
     "the axis of D"},
};

const struct qg_fields qg_ragged_fields = {
    "ragged", fields, sizeof fields / sizeof *fields, 0, 0};

/* Stack index 1: the table. The name is an axis, as the problem line has it. */
int qg_ragged_take(struct qg *q, struct qg_word *word)
{
    struct qg_ragged *ragged = qg_mem_new(q, sizeof *ragged);

    *ragged = (struct qg_ragged){
        .name = word->name, .a = "none", .b = "none", .d = "none"};
    if (qg_word_taken(q, word))
        return 0;
    if (qg_list_find(&qg_list_axes, word->name) < 0) {
        qg_diag_note(q, word->location, QG_E_RAGGED_NAME, word->name);
        return 0;
    }
    if (qg_field_read(q, word, &qg_ragged_fields, ragged))
        return 0;
    qg_word_declare(q, word, ragged);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: the words of the spec language, one row for each. */
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

static const struct qg_word_kind kinds[] = {
    {"recipe", QG_IDENTIFIER, 0, qg_recipe_take,
     "recipe \"name\" { element = ..., d = ... }",
     "how each operand is quantized"},
    {"layout", QG_IDENTIFIER, 0, qg_layout_take,
     "layout \"name\" { a = \"k\", b = \"k\" }",
     "which axis of A and B is contiguous"},
    {"ragged", QG_IDENTIFIER, 0, qg_ragged_take,
     "ragged \"m\" { a = \"m\", d = \"m\" }",
     "which axis differs by group, in which operands"},
    {"storage", QG_IDENTIFIER, 0, qg_storage_take,
     "storage \"name\" { order = \"rows\" }",
     "how scales are laid out in memory"},
    {"kernels", QG_IDENTIFIER, 0, qg_kernels_take,
     "kernels \"name\" { op = ..., template = ..., axis ... }",
     "a grid of kernels from one template"},
    {"extend", QG_IDENTIFIER, 0, qg_extend_take,
     "extend \"name\" { axis \"tile\" { {128, 160, 64} } }",
     "more kernels of a grid: other values of its axes"},
    {"shipped", QG_UNNAMED, 0, qg_shipped_take,
     "shipped { \"quern_...\", ... }", "kernels that are built ahead of time"},
    {"evidence", QG_IDENTIFIER, 0, qg_evidence_take,
     "evidence \"sm_90\" { \"quern_...\", ... }",
     "kernels that ran on a GPU, or \"interpreted\""},
    {"blocked", QG_UNNAMED, 1, qg_blocked_take,
     "blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of) ... "
     "}",
     "a scale for each block of values"},
    {"axis", QG_IDENTIFIER, 1, qg_axis_take,
     "axis \"name\" { value, value, ... }",
     "choices that make one kernel each"},
    {"derive", QG_IDENTIFIER, 1, qg_derive_take,
     "derive \"name\" (function (v) return ... end), or (256)",
     "a value that follows from those before it"},
    {"requires", QG_SENTENCE, 1, qg_requires_take,
     "requires \"k % 8 == 0\" \"reason\"",
     "a rule on the problem, and the sentence that says why"},
    {"reject", QG_SENTENCE, 1, qg_reject_take,
     "reject \"reason\" (function (v) return ... end)",
     "points of the grid that make no kernel"},
    {"without", QG_SENTENCE, 1, qg_reject_without,
     "without \"beta bias\" (function (v) return ... end)",
     "parameters that kernels do not have for which this is true"},
};

enum { COUNT = sizeof kinds / sizeof *kinds };

const struct qg_word_kind *qg_word_kind(int index)
{
    return index < COUNT ? &kinds[index] : NULL;
}

/* How a known word is written. */
static const char *usage_of(const char *word)
{
    int i = 0;

    while (strcmp(kinds[i].word, word))
        i++;
    return kinds[i].usage;
}

const void *qg_word_find(struct qg *q, const char *word, const char *name,
                         struct qg_location statement)
{
    const struct qg_word *found = qg_word_declared(q, word, name);
    struct qg_nearest nearest;

    if (found)
        return found->declared;
    qg_nearest_start(&nearest, name);
    for (found = q->declared; found; found = found->before)
        if (!strcmp(found->kind->word, word))
            qg_nearest_try(&nearest, found->name);
    qg_diag_note(q, qg_lex_field(q, statement, word, 1), QG_E_UNKNOWN_NAME,
                 word, name,
                 qg_nearest_hint(&nearest, "declare it: ", usage_of(word)));
    return NULL;
}

/* Into the table on top. */
void qg_word_build(struct qg *q)
{
    qg_object_define(q->L, QG_ITEM, "an entry of a kernels list");
    qg_object_define(q->L, QG_SCALE, "a scale");
    lua_pop(q->L, 2);
    for (int i = 0; i < COUNT; i++)
        qg_word_add(q->L, &kinds[i]);
}

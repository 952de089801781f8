/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.c: `evidence "sm_90" { "quern_...", ... }`: kernels that ran on such
   a GPU, or with "interpreted" in the interpreter of PTX. A name may end with
   an asterisk. bench/evidence.py compares the lists with results. */
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

#define WORD(name, word, ...) word,

static const char *const names[] = {QN_GPUS(WORD) "interpreted"};

enum { NAMES = sizeof names / sizeof *names };

/* The entry on top of the stack. Returns 1 if it is no name, and noted. */
static int take_name(struct qg *q, const struct qg_word *word, int entry,
                     int source)
{
    struct qg_evidence *evidence;

    if (lua_type(q->L, -1) != LUA_TSTRING) {
        qg_diag_note(q, word->location, QG_E_EVIDENCE_ENTRY, entry,
                     qg_object_kind(q->L, -1));
        return 1;
    }
    evidence = qg_mem_new(q, sizeof *evidence);
    evidence->name = qg_mem_string(q, lua_tostring(q->L, -1),
                                   strlen(lua_tostring(q->L, -1)));
    evidence->ran = source < NAMES - 1 ? 1u << source : 0;
    evidence->next = q->evidence;
    q->evidence = evidence;
    return 0;
}

/* The index of its name; -1 and noted if it is none. */
static int find_source(struct qg *q, const struct qg_word *word)
{
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, word->name);
    for (int i = 0; i < NAMES; i++) {
        if (!strcmp(names[i], word->name))
            return i;
        qg_nearest_try(&nearest, names[i]);
    }
    qg_diag_note(q, word->location, QG_E_EVIDENCE_NAME, word->name,
                 qg_nearest_hint(&nearest,
                                 "the GPUs are those of QN_GPUS in "
                                 "runtime/registry.h",
                                 ""));
    return -1;
}

/* Stack index 1: the list. May stand in several files: they add up. */
int qg_evidence_take(struct qg *q, struct qg_word *word)
{
    const int source = find_source(q, word);
    int count, wrong = source < 0;

    if (lua_type(q->L, 1) != LUA_TTABLE || qg_pairs_other(q->L, 1)) {
        qg_diag_note(q, word->location, QG_E_EVIDENCE_KIND,
                     qg_object_kind(q->L, 1));
        return 0;
    }
    count = (int)lua_rawlen(q->L, 1);
    for (int i = 1; i <= count && !wrong; i++) {
        lua_rawgeti(q->L, 1, i);
        wrong = take_name(q, word, i, source);
        lua_pop(q->L, 1);
    }
    return 0;
}

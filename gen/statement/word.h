/* SPDX-License-Identifier: Apache-2.0 */
/* word.h: the words of the spec language, and the action of each. */
#pragma once

#include "statement/spec.h"

enum qg_word_name { QG_UNNAMED, QG_IDENTIFIER, QG_SENTENCE };

/* A word of the language; `take` gets the value after the name at stack
** index 1 and returns how many values it leaves for the spec. */
struct qg_word_kind {
    const char *word;
    enum qg_word_name named;
    int is_part; /* its value belongs into a statement */
    int (*take)(struct qg *, struct qg_word *);
    const char *usage;
    const char *doc;
};

void qg_word_finish(struct qg *); /* at the end of a file */
int qg_word_identifier(const char *text, size_t bound);
int qg_word_sentence(const char *text); /* one line, 1 .. 200 characters */
/* Set the word's function in the table on top. */
void qg_word_add(lua_State *, const struct qg_word_kind *);
#define QG_ITEM  "entry"
#define QG_SCALE "scale"
/* Note a name that is declared already. Returns 1 then. */
int qg_word_taken(struct qg *, const struct qg_word *);
/* Keep a statement for those that name it. */
void qg_word_declare(struct qg *, struct qg_word *, const void *statement);
/* The word that declared a statement; NULL if none did. */
const struct qg_word *qg_word_declared(const struct qg *, const char *word,
                                       const char *name);
/* The function at stack index 1 as a reference; 0 and noted otherwise. */
int qg_word_function(struct qg *, const struct qg_word *);
/* The word with its name, if it has one, for messages: "recipe 'x'". */
const char *qg_word_print(struct qg *, const struct qg_word *);

/* ----------------------------------------------------------------- words.c */

const struct qg_word_kind *qg_word_kind(int index);
/* The statement of a word and a name, which the field of that word has in the
   statement at the location; NULL and noted. */
const void *qg_word_find(struct qg *, const char *word, const char *name,
                         struct qg_location);
void qg_word_build(struct qg *);

/* --------------------------------------------------- the file of each word */

int qg_recipe_take(struct qg *, struct qg_word *);
int qg_layout_take(struct qg *, struct qg_word *);
int qg_ragged_take(struct qg *, struct qg_word *);
int qg_storage_take(struct qg *, struct qg_word *);
int qg_kernels_take(struct qg *, struct qg_word *);
int qg_extend_take(struct qg *, struct qg_word *);
int qg_shipped_take(struct qg *, struct qg_word *);
int qg_evidence_take(struct qg *, struct qg_word *);
int qg_blocked_take(struct qg *, struct qg_word *);
int qg_axis_take(struct qg *, struct qg_word *);
int qg_derive_take(struct qg *, struct qg_word *);
int qg_requires_take(struct qg *, struct qg_word *);
int qg_reject_take(struct qg *, struct qg_word *);
int qg_reject_without(struct qg *, struct qg_word *);

/* --------------------------------------------------------------- kernels.c
** Each notes its errors, and returns how many there were.
*/

/* The entries of the table at stack index 1. */
int qg_kernels_items(struct qg *, struct qg_kernels *);
int qg_kernels_add(struct qg *, struct qg_kernels *, const struct qg_item *);
/* A misspelled name would leave the parameter in. */
int qg_kernels_without(struct qg *, const struct qg_kernels *,
                       const struct qg_item *);
int qg_kernels_axes(struct qg *, const struct qg_kernels *); /* too many? */

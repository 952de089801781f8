/* SPDX-License-Identifier: Apache-2.0 */
/*
** lists.h: words that specs and the runtime share, in the order of its enums.
*/
#ifndef QUERN_GEN_LUA_LISTS_H
#define QUERN_GEN_LUA_LISTS_H

#include "registry.h"

/* Both end with NULL; the names are those of the enum, in C. */
struct qg_list {
    const char *const *words, *const *names;
};

extern const struct qg_list qg_list_ops, qg_list_ofs, qg_list_axes,
    qg_list_majors, qg_list_epilogues, qg_list_forms, qg_list_spans,
    qg_list_orders, qg_list_types, qg_list_inputs;

/* The place of a word; -1: it has none. */
int qg_list_find(const struct qg_list *, const char *word);

/* "fprop dgrad wgrad", of one list or of several in a row. */
#define QG_WORD(name, word, ...) " " word
#define QG_WORDS(...)            (&(__VA_ARGS__)[1])

#endif

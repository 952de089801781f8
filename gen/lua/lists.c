/* SPDX-License-Identifier: Apache-2.0 */
/* lists.c: the lists as tables. */
#include "lua/base.h"

#include <string.h>

#define WORD(name, word, ...) word,
#define PUBLIC(name, ...)     "QUERN_" #name,
#define INTERNAL(name, ...)   "QN_" #name,
#define LIST(what, words, names)                                               \
    static const char *const what##_words[] = {words NULL};                    \
    static const char *const what##_names[] = {names NULL};                    \
    const struct qg_list qg_list_##what = {what##_words, what##_names};

LIST(ops, QUERN_OPS(WORD) QN_CASTS(WORD), QUERN_OPS(PUBLIC) QN_CASTS(INTERNAL))
LIST(ofs, QN_OFS(WORD), QN_OFS(INTERNAL))
LIST(axes, QUERN_AXES(WORD), QUERN_AXES(PUBLIC))
LIST(majors, QUERN_MAJORS(WORD), QUERN_MAJORS(PUBLIC))
LIST(epilogues, QN_EPILOGUES(WORD), QN_EPILOGUES(INTERNAL))
LIST(forms, QN_FORMS(WORD), QN_FORMS(INTERNAL))
LIST(orders, QN_ORDERS(WORD), QN_ORDERS(INTERNAL))
LIST(spans, WORD(, "block") QN_SPANS(WORD),
     INTERNAL(SPAN_BLOCK, ) QN_SPANS(INTERNAL))
LIST(types, WORD(, "none") QUERN_TYPES(WORD),
     PUBLIC(TYPE_NONE, ) QUERN_TYPES(PUBLIC))
LIST(inputs, QUERN_WIDE_TYPES(WORD) WORD(, "copy"), QUERN_WIDE_TYPES(PUBLIC))

int qg_list_find(const struct qg_list *list, const char *word)
{
    for (int i = 0; list->words[i]; i++)
        if (!strcmp(list->words[i], word))
            return i;
    return -1;
}

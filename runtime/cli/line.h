/* SPDX-License-Identifier: Apache-2.0 */
/*
** line.h: what a problem's line is about, by its first word.
*/
#ifndef QN_LINE_H
#define QN_LINE_H

#include <stddef.h>

enum qn_line_kind {
    QN_LINE_PRODUCT,
    QN_LINE_CAST,
    QN_LINE_LAYER,
    QN_LINE_UNKNOWN
};

/* A misspelled word counts as the nearest one, whose parser then refuses it;
   an empty line is a product's. */
enum qn_line_kind qn_line_of(const char *text);

/* Every first word that there is, with commas between them. */
const char *qn_line_words(char *buffer, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** lex.h: the tokens of a spec, to find the line that an error is about.
*/
#ifndef QUERN_GEN_LUA_LEX_H
#define QUERN_GEN_LUA_LEX_H

#include "qg.h"

enum qg_token { QG_END, QG_NAME, QG_KEYWORD, QG_STRING, QG_NUMBER, QG_SIGN };

struct qg_lex {
    const char *at, *end;
    enum qg_token token;
    const char *start; /* of the token */
    int length, line;
};

void qg_lex_start(struct qg_lex *, const char *text, size_t length);
int qg_lex_next(struct qg_lex *); /* 0 at the end */
int qg_lex_is(const struct qg_lex *, const char *text);
int qg_lex_nesting(const struct qg_lex *); /* what it adds to the depth */
/* The line of `field =`, `depth` tables inside what starts at `place`. */
struct qg_location qg_lex_field(const struct qg *, struct qg_location location,
                                const char *field, int depth);
/* The line of the first "text" in quotes from `place` on, else `place`. */
struct qg_location qg_lex_text(const struct qg *, struct qg_location location,
                               const char *text);
/* Note what one table of the file names twice. */
void qg_lex_twice(struct qg *, int file);

#endif

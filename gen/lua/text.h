/* SPDX-License-Identifier: Apache-2.0 */
/*
** text.h: text that grows.
*/
#ifndef QUERN_GEN_LUA_TEXT_H
#define QUERN_GEN_LUA_TEXT_H

#include "qg.h"

#include <stdarg.h>

void qg_text_clear(struct qg_text *);
void qg_text_add(struct qg *, struct qg_text *, const char *, size_t length);
void qg_text_put(struct qg *, struct qg_text *, const char *);
void qg_text_print(struct qg *, struct qg_text *, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void qg_text_vprint(struct qg *, struct qg_text *, const char *format, va_list);
void qg_text_quote(struct qg *, struct qg_text *, const char *); /* C string */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** diag.h: noting errors.
*/
#ifndef QUERN_GEN_LUA_DIAG_H
#define QUERN_GEN_LUA_DIAG_H

#include "messages.h"
#include "qg.h"

enum qg_message {
#define QG_MESSAGE_ENUM(name, format) QG_E_##name,
    QG_MESSAGES(QG_MESSAGE_ENUM)
#undef QG_MESSAGE_ENUM
};

/* Note an error and go on; the last one allowed unwinds everything. */
void qg_diag_note(struct qg *, struct qg_location, enum qg_message, ...);
/* Raise it in the spec's code instead: the line is the one that runs. */
int qg_diag_raise(lua_State *, enum qg_message, ...);
void qg_diag_clear(struct qg *);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.h: the number types.
*/
#ifndef QUERN_GEN_LUA_TYPES_H
#define QUERN_GEN_LUA_TYPES_H

#include "lua/lists.h"
#include "qg.h"

struct qg_type {
    const char *name;
    int id; /* enum quern_type */
    int bits;
    double max;  /* largest finite value */
    double tiny; /* smallest above 0 */
};

/* Types without scales; types that operands can have. */
#define QG_WIDE QG_WORDS(QUERN_WIDE_TYPES(QG_WORD))
#define QG_ELEMENTS                                                            \
    QG_WORDS(QUERN_WIDE_TYPES(QG_WORD) QUERN_NARROW_TYPES(QG_WORD) " i8")

void qg_types_build(struct qg *);
int qg_types_check(lua_State *, int index); /* enum quern_type; 0: no type */
void qg_types_push(lua_State *, int id);
const struct qg_type *qg_types_of(int id);

#endif

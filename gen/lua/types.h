/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.h: the number types.
*/
#ifndef QUERN_GEN_LUA_TYPES_H
#define QUERN_GEN_LUA_TYPES_H

#include "qg.h"

struct qg_type {
    const char *name;
    int id; /* enum quern_type */
    int bits;
    double max;  /* largest finite value */
    double tiny; /* smallest above 0 */
};

/* Types that operands can have. */
#define QG_ELEMENTS "bf16 f16 f32 e4m3 e5m2 e2m3 e3m2 e2m1 i8"

void qg_types_build(struct qg *);
int qg_types_check(lua_State *, int index); /* enum quern_type; 0: no type */
void qg_types_push(lua_State *, int id);
const struct qg_type *qg_types_of(int id);

#endif

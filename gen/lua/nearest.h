/* SPDX-License-Identifier: Apache-2.0 */
/*
** nearest.h: "did you mean ...?"
*/
#ifndef QUERN_GEN_LUA_NEAREST_H
#define QUERN_GEN_LUA_NEAREST_H

#include <stddef.h>

/* The right word that is closest to a wrong one. */
struct qg_nearest {
    const char *word;
    const char *best;
    int distance;
    char text[512];
};

void qg_nearest_start(struct qg_nearest *, const char *word);
void qg_nearest_try(struct qg_nearest *, const char *candidate);
void qg_nearest_words(struct qg_nearest *, const char *candidates);
/* "did you mean 'x'?", else `otherwise`, followed by `list`. */
const char *qg_nearest_hint(struct qg_nearest *, const char *otherwise,
                            const char *list);

#endif

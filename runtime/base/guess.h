/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h: the nearest right word for a wrong one. */
#pragma once

#include "internal.h"

#include <stddef.h>

/* Candidates are tried one by one; `best` is the nearest, NULL if none is
   near enough to be a misspelling. */
struct qn_guess {
    const char *word;
    const char *best;
    int distance;
};

void qn_guess_try(struct qn_guess *guess, const char *candidate);

/* "; did you mean 'x'?" into `buffer`, or "" without a guess. */
const char *qn_guess_text(const struct qn_guess *guess, char *buffer,
                          size_t size);

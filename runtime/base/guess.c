/* SPDX-License-Identifier: Apache-2.0 */
/* guess.c: the nearest right word for a wrong one. */

#include "base/guess.h"
#include <stdio.h>
#include <string.h>

#define LONGEST_WORD 120

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions and replacements that lead from one to the other. */
static int edits(const char *from, const char *to)
{
    int row[LONGEST_WORD + 1];
    int columns = (int)strlen(to);

    if (columns > LONGEST_WORD)
        return LONGEST_WORD;
    for (int j = 0; j <= columns; j++)
        row[j] = j;
    for (int i = 0; from[i]; i++) {
        int diagonal = row[0];

        row[0] = i + 1;
        for (int j = 0; j < columns; j++) {
            int replaced = diagonal + (from[i] != to[j]);

            diagonal = row[j + 1];
            row[j + 1] = least(replaced, least(row[j], diagonal) + 1);
        }
    }
    return row[columns];
}

void qn_guess_try(struct qn_guess *guess, const char *candidate)
{
    int length = (int)strlen(guess->word);
    int limit = length <= 3 ? 1 : length / 3 + 1;
    int distance;

    if (length > LONGEST_WORD)
        return;
    distance = edits(guess->word, candidate);
    if (distance <= limit && (!guess->best || distance < guess->distance)) {
        guess->best = candidate;
        guess->distance = distance;
    }
}

const char *qn_guess_text(const struct qn_guess *guess, char *buffer,
                          size_t size)
{
    buffer[0] = 0;
    if (guess->best)
        snprintf(buffer, size, "; did you mean '%s'?", guess->best);
    return buffer;
}

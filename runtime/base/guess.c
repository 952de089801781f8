/* SPDX-License-Identifier: Apache-2.0 */
/* guess.c: the nearest right word for a wrong one. */

#include "base/guess.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_WORD 120

/* Words of other libraries, which no misspelling leads to; a note where the
   right word is not quite the same. */
static const struct {
    const char *word, *right, *note;
} others[] = {
    {"relu2", "squared_relu", ""},
    {"relu_squared", "squared_relu", ""},
    {"gelu_new", "gelu_tanh", ""},
    {"gelu_pytorch_tanh", "gelu_tanh", ""},
    {"swish", "silu", " It is silu without a gate; with one it is 'swiglu'"},
    {"float32", "f32", ""},
    {"fp32", "f32", ""},
    {"float", "f32", ""},
    {"float16", "f16", ""},
    {"fp16", "f16", ""},
    {"half", "f16", ""},
    {"bfloat16", "bf16", ""},
    {"act", "activation", ""},
    {"dtype", "d", ""},
};

enum { OTHERS = sizeof others / sizeof others[0] };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Insertions, deletions and replacements that lead from one to the other,
   without regard to case. */
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
            int replaced = diagonal + !same(from[i], to[j]);

            diagonal = row[j + 1];
            row[j + 1] = least(replaced, least(row[j], diagonal) + 1);
        }
    }
    return row[columns];
}

/* -1: none of other libraries' words with this right one. */
static int find_other(const char *word, const char *right)
{
    int i = OTHERS - 1;

    while (i >= 0 &&
           (strcmp(others[i].right, right) || edits(word, others[i].word)))
        i--;
    return i;
}

void qn_guess_try(struct qn_guess *guess, const char *candidate)
{
    int length = (int)strlen(guess->word);
    /* another letter is no misspelling of one */
    int limit = length <= 3 ? length > 1 : length / 3 + 1;
    int distance;

    if (length > LONGEST_WORD)
        return;
    distance = find_other(guess->word, candidate) >= 0
                   ? 0
                   : edits(guess->word, candidate);
    if (distance <= limit && (!guess->best || distance < guess->distance)) {
        guess->best = candidate;
        guess->distance = distance;
    }
}

const char *qn_guess_text(const struct qn_guess *guess, char *buffer,
                          size_t size)
{
    int other = guess->best ? find_other(guess->word, guess->best) : -1;

    buffer[0] = 0;
    if (guess->best)
        snprintf(buffer, size, "; did you mean '%s'?%s", guess->best,
                 other < 0 ? "" : others[other].note);
    return buffer;
}

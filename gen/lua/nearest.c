/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c: the right word that a misspelled one probably means. */
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 128 };

/* The smallest of three. */
static int least(int a, int b, int c)
{
    int ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/* Without its case: E4M3 is near e4m3. */
static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Insertions, deletions, replacements and swaps of neighbours. */
static int distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);

    if (na > LONGEST || nb > LONGEST)
        return LONGEST;
    for (int j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *two = rows[(i + 1) % 3];

        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1,
                           above[j - 1] + (lower(a[i - 1]) != lower(b[j - 1])));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], two[j - 2] + 1, LONGEST);
        }
    }
    return rows[na % 3][nb];
}

void qg_nearest_start(struct qg_nearest *n, const char *word)
{
    int length = (int)strlen(word);

    n->word = word;
    n->best = NULL;
    /* a name farther away is no hint */
    n->distance = length < 4 ? 2 : length < 6 ? 3 : length / 3 + 1;
    if (n->distance > length)
        n->distance = length;
}

/* Ties go to the first in the alphabet: candidates may come in any order. */
void qg_nearest_try(struct qg_nearest *n, const char *candidate)
{
    int d = distance(n->word, candidate);

    if (d > 1 && strlen(n->word) < 6 && lower(*n->word) != lower(*candidate))
        return; /* two letters of a short word that begins otherwise */
    if (d < n->distance ||
        (n->best && d == n->distance && strcmp(candidate, n->best) < 0)) {
        n->distance = d;
        n->best = candidate;
    }
}

/* Candidates separated by blanks; keeps a copy of the best. */
void qg_nearest_words(struct qg_nearest *n, const char *candidates)
{
    char word[LONGEST], best[LONGEST] = "";
    int used;

    while (sscanf(candidates, " %127s%n", word, &used) == 1) {
        const char *before = n->best;

        qg_nearest_try(n, word);
        if (n->best != before) {
            strcpy(best, word);
            n->best = best;
        }
        candidates += used;
    }
    if (n->best == best) {
        snprintf(n->text, sizeof n->text, "%s", best);
        n->best = n->text;
    }
}

/* The text lives in `n`. */
const char *qg_nearest_hint(struct qg_nearest *n, const char *otherwise,
                            const char *list)
{
    if (n->best) {
        char best[LONGEST];

        snprintf(best, sizeof best, "%s", n->best);
        snprintf(n->text, sizeof n->text, "did you mean '%s'?", best);
    } else {
        snprintf(n->text, sizeof n->text, "%s%s", otherwise, list);
    }
    n->best = NULL;
    return n->text;
}

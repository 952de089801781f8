/* SPDX-License-Identifier: Apache-2.0 */
/* line.c: the kind of a problem's line, by its first word. */
#include "problem/problem.h"

#include <stdio.h>
#include <string.h>

#include "base/guess.h"
#include "base/types.h"

/* The i-th first word and its kind; NULL past the last. */
static const char *word_at(int i, enum qn_line_kind *line)
{
    const int cast = i - qn_product_words.count,
              layer = cast - qn_work_words.count;

    *line = cast < 0 ? QN_LINE_PRODUCT : layer < 0 ? QN_LINE_CAST : QN_LINE_MLP;
    return cast < 0    ? qn_product_words.names[i]
           : layer < 0 ? qn_work_words.names[cast]
           : layer     ? NULL
                       : "mlp";
}

enum qn_line_kind qn_line_of(const char *text)
{
    static const char space[] = " \t\n\v\f\r";
    enum qn_line_kind line, best = QN_LINE_UNKNOWN;
    char word[32];
    struct qn_guess guess = {.word = word};
    const char *candidate;

    text += strspn(text, space);
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, space), text);
    if (!*word)
        return QN_LINE_PRODUCT;
    for (int i = 0; (candidate = word_at(i, &line)); i++) {
        qn_guess_try(&guess, candidate);
        if (guess.best == candidate)
            best = line;
    }
    return best;
}

const char *qn_line_words(char *buffer, size_t size)
{
    enum qn_line_kind line;
    const char *word;
    size_t used = 0;

    for (int i = 0; (word = word_at(i, &line)) && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s",
                                 i ? ", " : "", word);
    return buffer;
}

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
    static const char *const mlps[] = {"mlp", NULL}, *const moes[] = {"moe",
                                                                      NULL};
    static const struct qn_words mlp = {mlps, 1}, moe = {moes, 1};
    static const struct qn_words *const words[QN_LINE_KINDS] = {
        &qn_product_words, &qn_work_words, &mlp, &qn_routing_words, &moe};
    int kind = 0;

    while (kind < QN_LINE_KINDS && i >= words[kind]->count)
        i -= words[kind++]->count;
    *line = (enum qn_line_kind)kind;
    return kind < QN_LINE_KINDS ? words[kind]->names[i] : NULL;
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

/* SPDX-License-Identifier: Apache-2.0 */
/* field.c: a line's fields, by the rows of its table. */
#include "problem/field.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"
#include "base/types.h"
#include "problem/problem.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_VALUE = 256 };

int qn_field_next(const char **at, char word[QN_LONGEST_WORD])
{
    static const char blanks[] = " \t\r\n";
    size_t length;

    *at += strspn(*at, blanks);
    length = strcspn(*at, blanks);
    if (length >= QN_LONGEST_WORD) {
        qn_error_set(QUERN_EINVAL,
                     "'%.20s...' is too long: a word has at "
                     "most %d characters",
                     *at, QN_LONGEST_WORD - 1);
        return -1;
    }
    memcpy(word, *at, length);
    word[length] = 0;
    *at += length;
    return length > 0;
}

/* ------------------------------------------------------------------- kinds */

int qn_field_number(const char *key, const char *value, int64_t *out)
{
    const char *end = qn_text_number(value, out);

    if (end && !*end)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: a whole number of at most 18 digits is "
                        "expected",
                        key, value);
}

static int set_length(const struct qn_field *f, void *target, const char *value)
{
    int64_t wide;
    int code = qn_field_number(f->key, value, &wide);

    if (!code && f->most && wide > f->most)
        code = qn_error_set(QUERN_EINVAL, "%s=%s: at most %lld is expected",
                            f->key, value, (long long)f->most);
    if (!code)
        *(int64_t *)((char *)target + f->at) = wide;
    return code;
}

static int set_int(const struct qn_field *f, void *target, const char *value)
{
    struct qn_field wide = *f;
    int64_t number;
    int code;

    wide.at = 0;
    wide.most = f->most ? f->most : INT32_MAX;
    code = set_length(&wide, &number, value);
    if (!code)
        *(int *)((char *)target + f->at) = (int)number;
    return code;
}

static int set_microbatches(const struct qn_field *f, void *target,
                            const char *value)
{
    int *out = (int *)((char *)target + f->at),
        code = set_int(f, target, value);

    if (!code && !*out)
        *out = -1;
    return code;
}

static int set_text(const struct qn_field *f, void *target, const char *value)
{
    if (strlen(value) > (size_t)f->most)
        return qn_error_set(QUERN_EINVAL, "%s: at most %d characters%s", f->key,
                            (int)f->most, f->expected);
    strcpy((char *)target + f->at, value);
    return QUERN_OK;
}

static int most_of(const struct qn_field *f)
{
    return f->most ? (int)f->most : f->words->count - 1;
}

int qn_field_listed(const char *key, const char *value,
                    const struct qn_words *words, int *out)
{
    const struct qn_field f = {.key = key, .words = words};

    return qn_field_word.set(&f, out, value);
}

static int set_word(const struct qn_field *f, void *target, const char *value)
{
    struct qn_guess guess = {.word = value};
    char hint[128] = "", list[160] = "";
    size_t used = 0;
    int i;

    if (!qn_words_find(f->words, value, &i)) {
        const int listed = !f->expected || f->flags & QN_FIELD_LISTED;

        for (i = listed ? 0 : f->least; i <= most_of(f); i++)
            qn_guess_try(&guess, f->words->names[i]);
        for (i = 0; i <= most_of(f) && listed && used < sizeof list; i++)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                     i ? ", " : "", f->words->names[i]);
        if (listed || f->flags & QN_FIELD_GUESSED)
            qn_guess_text(&guess, hint, sizeof hint);
        return qn_error_set(
            QUERN_EINVAL, "%s%s%s: %s%s%s", f->key, *f->key ? "=" : "", value,
            listed ? list : f->expected, listed ? " is expected" : "", hint);
    }
    if (i < f->least || i > most_of(f))
        return qn_error_set(QUERN_EINVAL, "%s=%s: %s", f->key, value,
                            f->expected);
    *(int *)((char *)target + f->at) = i;
    return QUERN_OK;
}

void qn_field_print_word(const struct qn_field *f, const void *at, char *text,
                         size_t size)
{
    snprintf(text, size, "%s", qn_words_name(f->words, *(const int *)at));
}

static void print_int(const struct qn_field *f, const void *at, char *text,
                      size_t size)
{
    (void)f;
    snprintf(text, size, "%d", *(const int *)at);
}

static void print_microbatches(const struct qn_field *f, const void *at,
                               char *text, size_t size)
{
    if (*(const int *)at > 0)
        print_int(f, at, text, size);
}

static void print_length(const struct qn_field *f, const void *at, char *text,
                         size_t size)
{
    (void)f;
    snprintf(text, size, "%lld", (long long)*(const int64_t *)at);
}

/* It may end with the array. */
static void print_text(const struct qn_field *f, const void *at, char *text,
                       size_t size)
{
    snprintf(text, size, "%.*s", (int)f->most + 1, (const char *)at);
}

const struct qn_field_kind qn_field_word = {set_word, qn_field_print_word,
                                            sizeof(int)};
const struct qn_field_kind qn_field_int = {set_int, print_int, sizeof(int)};
const struct qn_field_kind qn_field_length = {set_length, print_length,
                                              sizeof(int64_t)};
const struct qn_field_kind qn_field_text = {set_text, print_text, 1};
const struct qn_field_kind qn_field_microbatches = {
    set_microbatches, print_microbatches, sizeof(int)};

/* ------------------------------------------------------------------- lines */

/* An op that is none has every field. */
static int lacks(const struct qn_field *f, int first)
{
    return !*f->key || (first >= 0 && first < 32 && f->without >> first & 1);
}

/* Both kinds of misspelling: of the key, or of the equals sign. */
static int unknown_key(const struct qn_fields *line, const char *word,
                       int has_value)
{
    struct qn_guess guess = {.word = word};
    char hint[128], known[256] = "";
    size_t used = 0;

    for (int i = 0; i < line->count && used < sizeof known; i++) {
        const char *key = line->fields[i].key;

        if (*word && *key)
            qn_guess_try(&guess, key);
        if (*key)
            used += (size_t)snprintf(known + used, sizeof known - used,
                                     " %s=", key);
    }
    return qn_error_set(QUERN_EINVAL, "'%s' %s%s; known:%s", word,
                        has_value ? "is unknown" : "has no value",
                        qn_guess_text(&guess, hint, sizeof hint), known);
}

/* KEY=VALUE; `given` has a bit for each key that came before. */
static int parse_pair(const struct qn_fields *line, char *word, uint64_t *given,
                      void *target)
{
    char *equals = strchr(word, '=');
    int i = 0, has_value = equals && equals[1];
    const struct qn_field *f;

    if (equals)
        *equals = 0;
    if (qn_renamed_check(word, has_value ? equals + 1 : ""))
        return QUERN_EINVAL;
    while (i < line->count && (!*word || strcmp(line->fields[i].key, word)))
        i++;
    if (i == line->count)
        return unknown_key(line, word, has_value);
    f = &line->fields[i];
    if (!has_value)
        return qn_error_set(QUERN_EINVAL,
                            "'%s%s' has no value; write: %s=VALUE, without "
                            "spaces",
                            word, equals ? "=" : "", word);
    if (*given >> i & 1)
        return qn_error_set(QUERN_EINVAL, "%s= is given twice", f->key);
    *given |= (uint64_t)1 << i;
    return f->kind->set(f, target, equals + 1);
}

int qn_field_parse(const struct qn_fields *line, int first, const char *at,
                   void *target)
{
    char word[QN_LONGEST_WORD];
    uint64_t given = 0;
    int found;

    while ((found = qn_field_next(&at, word)) > 0) {
        int code = parse_pair(line, word, &given, target);

        if (code)
            return code;
    }
    if (found < 0)
        return QUERN_EINVAL;
    for (int i = 0; i < line->count; i++) {
        const struct qn_field *f = &line->fields[i];

        if (f->flags & QN_FIELD_REQUIRED && !lacks(f, first) &&
            !(given >> i & 1))
            return qn_error_set(QUERN_EINVAL, "%s= is missing", f->key);
    }
    return QUERN_OK;
}

int qn_field_print(const struct qn_fields *line, int first, const char *word,
                   const void *target, const void *usual, const char *recipe,
                   char *buffer, size_t size)
{
    size_t used;

    if (!buffer)
        size = 0;
    used = (size_t)snprintf(buffer, size, "%s%s%.32s", word, *recipe ? " " : "",
                            recipe);
    for (int i = 0; i < line->count; i++) {
        const struct qn_field *f = &line->fields[i];
        const char *at = (const char *)target + f->at;
        char value[LONGEST_VALUE + 1] = "";
        const size_t left = used < size ? size - used : 0;

        if (lacks(f, first) ||
            (!(f->flags & (QN_FIELD_SHOWN | QN_FIELD_REQUIRED)) &&
             !memcmp(at, (const char *)usual + f->at, f->kind->size)))
            continue;
        f->kind->print(f, at, value, sizeof value);
        if (*value)
            used += (size_t)snprintf(left ? buffer + used : NULL, left,
                                     " %s=%s", f->key, value);
    }
    return (int)used;
}

int qn_field_check(const struct qn_fields *line, const void *target)
{
    for (int i = 0; i < line->count; i++) {
        const struct qn_field *f = &line->fields[i];
        const void *at = (const char *)target + f->at;

        if (f->kind == &qn_field_text && !memchr(at, 0, (size_t)f->most + 1))
            return qn_error_set(QUERN_EINVAL, "%s is not NUL-terminated",
                                f->member);
        if (f->words && !(f->flags & QN_FIELD_LATER) &&
            (*(const int *)at < f->least || *(const int *)at > most_of(f)))
            return qn_error_set(QUERN_EINVAL,
                                "%s is %d: not one of the values that %s",
                                f->member, *(const int *)at, line->whose);
    }
    return QUERN_OK;
}

int qn_field_same(const struct qn_fields *line, const void *x, const void *y)
{
    for (int i = 0; i < line->count; i++) {
        const struct qn_field *f = &line->fields[i];

        if (!(f->flags & QN_FIELD_VARIES) &&
            memcmp((const char *)x + f->at, (const char *)y + f->at,
                   f->kind->size))
            return 0;
    }
    return 1;
}

/* A value as help shows it. */
static size_t print_usage(const struct qn_field *f, char *text, size_t size)
{
    size_t used = 0;

    if (f->usage)
        return (size_t)snprintf(text, size, "%s", f->usage);
    if (!f->words)
        return (size_t)snprintf(text, size, "%c", toupper(f->key[0]));
    for (int i = f->least; i <= most_of(f) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i > f->least ? "|" : "", f->words->names[i]);
    return used;
}

const char *qn_field_usage(const struct qn_fields *line, int first,
                           char *buffer, size_t size)
{
    size_t used = 0;

    for (int i = 0; i < line->count && used < size; i++) {
        const struct qn_field *f = &line->fields[i];
        const int optional = !(f->flags & QN_FIELD_REQUIRED);

        if (!*f->key || (first >= 0 && f->without >> first & 1))
            continue;
        used += (size_t)snprintf(buffer + used, size - used,
                                 "%s%s%s=", used ? " " : "",
                                 optional ? "[" : "", f->key);
        if (used < size)
            used += print_usage(f, buffer + used, size - used);
        if (used < size && optional)
            used += (size_t)snprintf(buffer + used, size - used, "]");
    }
    return buffer;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** lex.c: the tokens of a spec's text.
**
** Lua compiles specs; this only finds words in them: the line of a field for
** a message, and the words that a scale rule must not use.
*/
#include "lua/base.h"

#include <ctype.h>
#include <string.h>

static const char *const keywords[] = {
    "and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
    "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
    "repeat",   "return", "then", "true", "until",  "while"};

void qg_lex_start(struct qg_lex *lex, const char *text, size_t length)
{
    *lex = (struct qg_lex){.at = text, .end = text + length, .line = 1};
}

int qg_lex_is(const struct qg_lex *lex, const char *text)
{
    return strlen(text) == (size_t)lex->length &&
           !memcmp(text, lex->start, (size_t)lex->length);
}

/* The character `ahead` of the present one, 0 past the end. */
static int peek(const struct qg_lex *lex, int ahead)
{
    return lex->end - lex->at > ahead ? (unsigned char)lex->at[ahead] : 0;
}

/* Over one character, counting lines. */
static void skip(struct qg_lex *lex)
{
    if (*lex->at == '\n')
        lex->line++;
    lex->at++;
}

/* The number of = in an opening [==[, or -1. */
static int long_bracket(const struct qg_lex *lex)
{
    int level = 0;

    if (peek(lex, 0) != '[')
        return -1;
    while (peek(lex, 1 + level) == '=')
        level++;
    return peek(lex, 1 + level) == '[' ? level : -1;
}

/* Past the closing ]==] of the same level. */
static void skip_long(struct qg_lex *lex, int level)
{
    lex->at += level + 2;
    while (lex->at < lex->end) {
        int equals = 0;

        if (peek(lex, 0) == ']') {
            while (peek(lex, 1 + equals) == '=')
                equals++;
            if (equals == level && peek(lex, 1 + equals) == ']') {
                lex->at += level + 2;
                return;
            }
        }
        skip(lex);
    }
}

/* Past the closing quote; an unfinished string ends with its line. \z takes
   the blanks after it, ends of lines among them. */
static void skip_quoted(struct qg_lex *lex)
{
    char quote = *lex->at++;

    while (lex->at < lex->end && *lex->at != quote && *lex->at != '\n') {
        int blanks = peek(lex, 0) == '\\' && peek(lex, 1) == 'z';

        if (*lex->at == '\\' && lex->at + 1 < lex->end)
            lex->at++;
        skip(lex);
        while (blanks && isspace(peek(lex, 0)))
            skip(lex);
    }
    if (lex->at < lex->end && *lex->at == quote)
        lex->at++;
}

static void skip_comment(struct qg_lex *lex)
{
    int level;

    lex->at += 2;
    level = long_bracket(lex);
    if (level >= 0) {
        skip_long(lex, level);
        return;
    }
    while (lex->at < lex->end && *lex->at != '\n')
        lex->at++;
}

static void skip_blanks(struct qg_lex *lex)
{
    while (lex->at < lex->end) {
        if (peek(lex, 0) == '-' && peek(lex, 1) == '-')
            skip_comment(lex);
        else if (isspace((unsigned char)*lex->at))
            skip(lex);
        else
            return;
    }
}

/* Keywords are told from names: only they open and close blocks. */
static void take_name(struct qg_lex *lex)
{
    while (isalnum(peek(lex, 0)) || peek(lex, 0) == '_')
        lex->at++;
    lex->length = (int)(lex->at - lex->start);
    lex->token = QG_NAME;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (*lex->start == *keywords[i] && qg_lex_is(lex, keywords[i]))
            lex->token = QG_KEYWORD;
}

/* Operators of two characters are one token: <= is not <. */
static void take_sign(struct qg_lex *lex)
{
    static const char *const pairs[] = {"==", "~=", "<=", ">=", "//",
                                        "::", "<<", ">>", ".."};

    lex->token = QG_SIGN;
    lex->at++;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (*lex->start == pairs[i][0] && peek(lex, 0) == pairs[i][1]) {
            lex->at++;
            return;
        }
}

/* Past the next token; its fields are set. Returns 0 at the end. */
int qg_lex_next(struct qg_lex *lex)
{
    int level, c;

    skip_blanks(lex);
    lex->start = lex->at;
    lex->length = 0;
    lex->token = QG_END;
    if (lex->at >= lex->end)
        return 0;
    c = peek(lex, 0);
    level = long_bracket(lex);
    if (isalpha(c) || c == '_') {
        take_name(lex);
    } else if (isdigit(c)) {
        lex->token = QG_NUMBER;
        while (isalnum(peek(lex, 0)) || peek(lex, 0) == '.')
            lex->at++;
    } else if (c == '"' || c == '\'') {
        lex->token = QG_STRING;
        skip_quoted(lex);
    } else if (level >= 0) {
        lex->token = QG_STRING;
        skip_long(lex, level);
    } else {
        take_sign(lex);
    }
    lex->length = (int)(lex->at - lex->start);
    return 1;
}

/* How the token changes the depth of brackets and blocks. */
int qg_lex_nesting(const struct qg_lex *lex)
{
    static const char *const openers[] = {"(",  "[",  "{",     "function",
                                          "do", "if", "repeat"};
    static const char *const closers[] = {")", "]", "}", "end", "until"};

    if (lex->token != QG_SIGN && lex->token != QG_KEYWORD)
        return 0;
    for (size_t i = 0; i < sizeof openers / sizeof *openers; i++)
        if (qg_lex_is(lex, openers[i]))
            return 1;
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++)
        if (qg_lex_is(lex, closers[i]))
            return -1;
    return 0;
}

struct qg_location qg_lex_field(const struct qg *q, struct qg_location location,
                                const char *field, int depth)
{
    const struct qg_input *file;
    struct qg_location found = location;
    struct qg_lex lex;
    int level = 0;

    if (location.file < 0)
        return location;
    file = &q->files[location.file];
    qg_lex_start(&lex, file->text, file->length);
    while (qg_lex_next(&lex)) {
        if (lex.line < location.line)
            continue;
        level += qg_lex_nesting(&lex);
        if (level == depth && lex.token == QG_NAME && qg_lex_is(&lex, field)) {
            found.line = lex.line;
            if (qg_lex_next(&lex) && qg_lex_is(&lex, "="))
                return found;
            level += qg_lex_nesting(&lex);
        }
    }
    return location;
}

/* A table, or other text that brackets and blocks enclose; and a name in it. */
struct scope {
    int is_table, names; /* those before it */
};

struct name {
    const char *start;
    int length, line;
};

/* The text around the token; hostile depths and lengths are cut off. */
struct scopes {
    struct scope at[64];
    int depth; /* may be more than there is room for */
    struct name names[512];
    int count;
};

static void enter(struct scopes *s, const struct qg_lex *lex)
{
    if (s->depth < 64)
        s->at[s->depth] = (struct scope){qg_lex_is(lex, "{"), s->count};
    s->depth++;
}

static void leave(struct scopes *s)
{
    if (s->depth && --s->depth < 64)
        s->count = s->at[s->depth].names;
}

/* Is a token with this one before it the name of a field, should = follow? */
static int may_be_field(const struct scopes *s, int after)
{
    return s->depth && s->depth <= 64 && s->at[s->depth - 1].is_table &&
           strchr("{,;", after);
}

/* The name, if it stands in the innermost table already; else it is kept. */
static const struct name *keep(struct scopes *s, struct name name)
{
    for (int i = s->at[s->depth - 1].names; i < s->count; i++)
        if (s->names[i].length == name.length &&
            !memcmp(s->names[i].start, name.start, (size_t)name.length))
            return &s->names[i];
    if (s->count < 512)
        s->names[s->count++] = name;
    return NULL;
}

/* Lua takes the last of two without a word; most likely one is a slip. */
void qg_lex_twice(struct qg *q, int file)
{
    struct scopes s = {.depth = 0};
    struct qg_lex lex, ahead;
    int before = 0;

    qg_lex_start(&lex, q->files[file].text, q->files[file].length);
    while (qg_lex_next(&lex)) {
        struct name name = {lex.start, lex.length, lex.line};
        int field = lex.token == QG_NAME && may_be_field(&s, before);
        int change = qg_lex_nesting(&lex);
        const struct name *first;

        before = *lex.start;
        if (change > 0)
            enter(&s, &lex);
        else if (change < 0)
            leave(&s);
        ahead = lex;
        if (!field || !qg_lex_next(&ahead) || !qg_lex_is(&ahead, "="))
            continue;
        first = keep(&s, name);
        if (first)
            qg_diag_note(
                q, (struct qg_location){file, name.line}, QG_E_FIELD_TWICE,
                qg_mem_print(q, "%.*s", name.length, name.start), first->line);
    }
}

struct qg_location qg_lex_text(const struct qg *q, struct qg_location location,
                               const char *text)
{
    const struct qg_input *file;
    size_t length = strlen(text);
    struct qg_lex lex;

    if (location.file < 0)
        return location;
    file = &q->files[location.file];
    qg_lex_start(&lex, file->text, file->length);
    while (qg_lex_next(&lex))
        if (lex.token == QG_STRING && lex.line >= location.line &&
            (size_t)lex.length == length + 2 &&
            !memcmp(lex.start + 1, text, length))
            return (struct qg_location){location.file, lex.line};
    return location;
}

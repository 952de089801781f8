/* SPDX-License-Identifier: Apache-2.0 */
/*
** decl.c: the top level of a generated text.
**
** This is no parser of C: it finds where declarations begin and end, by their
** brackets, and their names. An item that it takes for another kind is
** kept, or keeps others: a kernel then says more than it must.
*/
#include "write/decl.h"

#include "lua/base.h"

#include <string.h>

enum { MOST_OPEN = 64 };

/* ------------------------------------------------------------------ tokens */

static int is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Is it a comment? */
static int is_comment(const char *at, const char *end)
{
    return end - at >= 2 && at[0] == '/' && (at[1] == '*' || at[1] == '/');
}

/* Past the comment that begins here; NULL if it does not end. */
static const char *past_comment(const char *at, const char *end)
{
    if (at[1] == '/') {
        const char *line = memchr(at, '\n', (size_t)(end - at));

        return line ? line : end;
    }
    for (at += 2; end - at >= 2; at++)
        if (at[0] == '*' && at[1] == '/')
            return at + 2;
    return NULL;
}

/* Past the text in quotes that begins here; NULL if its line ends first. */
static const char *past_quotes(const char *at, const char *end)
{
    char quote = *at++;

    for (; at < end && *at != '\n'; at++) {
        if (*at == quote)
            return at + 1;
        at += *at == '\\';
    }
    return NULL;
}

/* Past a number: letters, dots and the signs of exponents are parts of it. */
static const char *past_number(const char *at, const char *end)
{
    for (; at < end; at++)
        if (!is_word(*at) && *at != '.' &&
            !((*at == '+' || *at == '-') && strchr("eEpP", at[-1])))
            break;
    return at;
}

struct qg_decl_token qg_decl_token(const char *at, const char *end)
{
    struct qg_decl_token t = {at, at, 0, 0};

    for (;;) {
        while (at < end && is_space(*at))
            at++;
        if (!is_comment(at, end))
            break;
        t.at = at;
        at = past_comment(at, end);
        if (!at)
            return (struct qg_decl_token){NULL, t.at, 0, 0};
    }
    t.at = t.end = at;
    if (at == end)
        return t;
    if (is_digit(*at) || (*at == '.' && end - at > 1 && is_digit(at[1]))) {
        t.end = past_number(at + 1, end);
    } else if (is_word(*at)) {
        for (t.hash = 2166136261u; t.end < end && is_word(*t.end); t.end++)
            t.hash = (t.hash ^ (unsigned char)*t.end) * 16777619u;
        t.word = 1;
    } else if (*at == '"' || *at == '\'') {
        t.end = past_quotes(at, end);
        if (!t.end)
            return (struct qg_decl_token){NULL, at, 0, 0};
    } else {
        t.end = at + 1;
    }
    return t;
}

static int is(const struct qg_decl_token *t, const char *word)
{
    size_t length = strlen(word);

    return (size_t)(t->end - t->at) == length && !memcmp(t->at, word, length);
}

/* ------------------------------------------------------------------- names */

void *qg_decl_grow(struct qg *q, void *array, int count, int *room, size_t size)
{
    void *grown;

    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 256;
    grown = qg_mem_array(q, (size_t)*room, size);
    if (count)
        memcpy(grown, array, (size_t)count * size);
    return grown;
}

static struct qg_decl_name *same(struct qg_decls *items, int index,
                                 const char *at, size_t length)
{
    for (; index; index = items->names[index - 1].next) {
        struct qg_decl_name *name = &items->names[index - 1];

        if (name->length == length && !memcmp(name->at, at, length))
            return name;
    }
    return NULL;
}

struct qg_decl_name *qg_decl_find(struct qg_decls *items,
                                  const struct qg_decl_token *t)
{
    return same(items, items->buckets[t->hash % QG_DECL_BUCKETS], t->at,
                (size_t)(t->end - t->at));
}

struct qg_decl_name *qg_decl_again(struct qg_decls *items,
                                   struct qg_decl_name *name)
{
    return same(items, name->next, name->at, name->length);
}

static void add_name(struct qg *q, struct qg_decls *items, int item,
                     const struct qg_decl_token *t)
{
    int *bucket = &items->buckets[t->hash % QG_DECL_BUCKETS];

    items->names = qg_decl_grow(q, items->names, items->names_count,
                                &items->names_room, sizeof *items->names);
    items->names[items->names_count] =
        (struct qg_decl_name){t->at, (size_t)(t->end - t->at), item, *bucket};
    *bucket = ++items->names_count;
}

static int add_item(struct qg *q, struct qg_decls *items, struct qg_decl item)
{
    items->at = qg_decl_grow(q, items->at, items->count, &items->room,
                             sizeof *items->at);
    items->at[items->count] = item;
    return items->count++;
}

/* ------------------------------------------------------------------- items */

/* With the comment that follows on the same line. */
static const char *with_comment(const char *at, const char *end)
{
    const char *next = at;

    while (next < end && (*next == ' ' || *next == '\t'))
        next++;
    if (!is_comment(next, end))
        return at;
    next = past_comment(next, end);
    return next ? next : at;
}

/* A declaration, as far as it is read. */
struct declaration {
    const char *end;
    struct qg_decl_token before, last; /* tokens at its own level: words only */
    struct qg_decl_token called;       /* the word in front of "(" */
    struct qg_decl_token variable;     /* that of "[" or "=" */
    struct qg_decl_token tag;          /* of a struct, a union or an enum */
    struct qg_decl_token open, close;  /* the braces of an enum */
    int is_typedef, is_enum, is_body, is_value;
};

static int is_tagged(const struct qg_decl_token *t)
{
    return is(t, "struct") || is(t, "union") || is(t, "enum");
}

/* A bracket at the declaration's own level opens. */
static void open_bracket(struct declaration *d, const struct qg_decl_token *t,
                         const struct qg_decl_token *previous)
{
    const int after_word = d->last.at && previous->at == d->last.at;

    if (*t->at == '(' && !d->is_value && after_word &&
        strncmp(d->last.at, "__", 2) != 0)
        d->called = d->last;
    if (*t->at == '[' && !d->variable.at)
        d->variable = d->last;
    if (*t->at != '{')
        return;
    d->is_body = *previous->at == ')' && d->called.at && !d->is_value;
    if (after_word && d->before.at && is_tagged(&d->before))
        d->tag = d->last;
    if (d->is_enum && !d->open.at)
        d->open = *t;
}

static void take_word(struct declaration *d, const struct qg_decl_token *t)
{
    d->is_typedef |= !d->last.at && is(t, "typedef");
    d->is_enum |= is(t, "enum") && !d->is_value;
    d->before = d->last;
    d->last = *t;
}

/* Past the <...> of a template; `at` is after that word. */
static const char *past_angles(const char *at, const char *end)
{
    struct qg_decl_token t = qg_decl_token(at, end);

    while (t.at && t.at < t.end && *t.at != '>')
        t = qg_decl_token(t.end, end);
    return t.at ? t.end : at;
}

/* To the next relevant text inside brackets: others, quotes and comments. */
static const char *past_plain(const char *at, const char *end)
{
    static const char stops[256] = {
        ['('] = 1, ['['] = 1, ['{'] = 1,  [')'] = 1, [']'] = 1,
        ['}'] = 1, ['"'] = 1, ['\''] = 1, ['/'] = 1};

    while (at < end && !stops[(unsigned char)*at])
        at++;
    return at;
}

/* 0 if the closing bracket belongs to none, or to another kind. */
static int closes(char open, char close)
{
    return (open == '(' && close == ')') || (open == '[' && close == ']') ||
           (open == '{' && close == '}');
}

/* Read the declaration at `at`. NULL, or the position of the text that does not
   fit. */
static const char *read_declaration(struct declaration *d, const char *at,
                                    const char *end)
{
    struct qg_decl_token t, previous = {at, at, 0, 0};
    const char *open[MOST_OPEN];
    int depth = 0;

    for (;; previous = t) {
        t = qg_decl_token(depth ? past_plain(at, end) : at, end);
        if (!t.at)
            return t.end;
        at = d->end = t.end;
        if (t.at == t.end)
            return depth ? open[depth - 1] : NULL;
        if (t.word && !depth) {
            take_word(d, &t);
            if (is(&t, "template"))
                at = past_angles(at, end);
        } else if (strchr("([{", *t.at)) {
            if (!depth)
                open_bracket(d, &t, &previous);
            if (depth == MOST_OPEN)
                return t.at;
            open[depth++] = t.at;
        } else if (strchr(")]}", *t.at)) {
            if (!depth || !closes(*open[--depth], *t.at))
                return t.at;
            if (!depth && *t.at == '}') {
                if (d->is_body)
                    return NULL;
                if (d->open.at && !d->close.at)
                    d->close = t;
            }
        } else if (!depth && *t.at == ';') {
            return NULL;
        } else if (!depth && *t.at == '=' && !d->is_value) {
            d->is_value = 1;
            if (!d->variable.at)
                d->variable = d->last;
        }
    }
}

/* The constant that begins after `at`: its name, and whether it has a value;
   its item ends after its comma, if there is one. */
static struct qg_decl read_constant(const char *at, const char *close,
                                    struct qg_decl_token *name, int *has_value)
{
    struct qg_decl item = {.start = at, .kind = QG_DECL_CONSTANT, .end = close};
    struct qg_decl_token t = qg_decl_token(at, close);
    int depth = 0;

    *name = t;
    *has_value = 0;
    while (t.at < t.end) {
        item.end = t.end;
        depth += (*t.at == '(') - (*t.at == ')');
        *has_value |= *t.at == '=';
        if (*t.at == ',' && !depth) {
            item.comma = t.at;
            break;
        }
        t = qg_decl_token(t.end, close);
    }
    item.end = with_comment(item.end, close);
    return item;
}

/* Constants are items where each has a value of its own. */
static void add_constants(struct qg *q, struct qg_decls *items, int parent,
                          const struct declaration *d)
{
    const char *at = d->open.end, *close = d->close.at;
    struct qg_decl_token name;
    int first = items->count, names = 0, all_have_values = 1, has_value;

    while (qg_decl_token(at, close).at != close) {
        struct qg_decl item = read_constant(at, close, &name, &has_value);

        item.parent = parent;
        all_have_values &= has_value;
        at = item.end;
        names++;
        add_name(q, items, add_item(q, items, item), &name);
    }
    if (all_have_values && !d->tag.at) {
        items->at[parent].open = d->open.at;
        return;
    }
    items->count = first;
    for (; names; names--)
        items->names[items->names_count - names].item = parent;
}

static void add_declared(struct qg *q, struct qg_decls *items, int item,
                         const struct declaration *d)
{
    struct qg_decl_token name = d->called.at ? d->called : d->last;
    int before = items->names_count;

    if (d->is_value || (d->variable.at && !d->called.at))
        name = d->variable;
    if (d->tag.at)
        add_name(q, items, item, &d->tag);
    if (name.at && name.at != d->tag.at && name.word && !is(&name, "enum"))
        add_name(q, items, item, &name);
    if (d->close.at)
        add_constants(q, items, item, d);
    if (items->names_count == before)
        items->at[item].kind = QG_DECL_OTHER;
}

/* "#define NAME ..."; the line may go on after a "\". */
static const char *add_directive(struct qg *q, struct qg_decls *items,
                                 struct qg_decl item, const char *at,
                                 const char *end)
{
    struct qg_decl_token word = qg_decl_token(at + 1, end), name;

    for (item.end = at; item.end < end && *item.end != '\n'; item.end++)
        item.end += *item.end == '\\' && item.end + 1 < end;
    items->includes |= is(&word, "include");
    item.kind = is(&word, "define") ? QG_DECL_DECLARES : QG_DECL_OTHER;
    add_item(q, items, item);
    if (item.kind == QG_DECL_DECLARES) {
        name = qg_decl_token(word.end, end);
        add_name(q, items, items->count - 1, &name);
    }
    return item.end;
}

/* Is there an empty line? */
static int is_blank(const char *at, const char *end)
{
    int lines = 0;

    for (; at < end && is_space(*at); at++)
        lines += *at == '\n';
    return lines > 1;
}

/* Past blanks. */
static const char *past_blanks(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

const char *qg_decl_parse(struct qg *q, struct qg_decls *items,
                          const char *text, size_t length)
{
    const char *at = text, *end = text + length, *next, *wrong;

    items->count = items->names_count = items->includes = 0;
    memset(items->buckets, 0, sizeof items->buckets);
    while (next = past_blanks(at, end), next < end) {
        struct qg_decl item = {.start = next, .blank = is_blank(at, end)};
        struct declaration d = {.end = next};

        at = next;
        while (is_comment(at, end)) {
            next = past_comment(at, end);
            if (!next)
                return at;
            item.end = at = next;
            if (is_blank(at, end) || past_blanks(at, end) == end)
                break;
            at = past_blanks(at, end);
        }
        if (item.end == at) {
            item.kind = QG_DECL_COMMENT;
            add_item(q, items, item);
            continue;
        }
        if (*at == '#') {
            at = add_directive(q, items, item, at, end);
            continue;
        }
        wrong = read_declaration(&d, at, end);
        if (wrong)
            return wrong;
        item.end = at = with_comment(d.end, end);
        add_declared(q, items, add_item(q, items, item), &d);
    }
    return NULL;
}

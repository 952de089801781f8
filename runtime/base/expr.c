/* SPDX-License-Identifier: Apache-2.0 */
/*
** expr.c: the value of a `requires` text for a problem.
**
** A recursive descent by precedence. Texts come from specs, which
** are not trusted: depth is bounded and nothing overflows.
*/

#include "base/expr.h"
#include <ctype.h>
#include <string.h>

#define DEEPEST 64

struct state {
    const char *at;
    const struct qn_expr_values *values;
    const char *error; /* the first one */
    int depth;
    int skip; /* > 0: parse only, the value cannot matter */
};

static int64_t binary(struct state *s, int level);

/* The first error counts; the value does not. */
static int64_t fail(struct state *s, const char *error)
{
    if (!s->error)
        s->error = error;
    return 0;
}

static void blanks(struct state *s)
{
    while (isspace((unsigned char)*s->at))
        s->at++;
}

/* Decimal digits, with nothing glued to them. */
static int64_t number(struct state *s)
{
    int64_t value = 0;

    while (isdigit((unsigned char)*s->at)) {
        int digit = *s->at++ - '0';

        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return fail(s, "a number is too large");
    }
    if (isalpha((unsigned char)*s->at) || *s->at == '_')
        return fail(s, "a number runs into a name");
    return value;
}

/* The problem's sizes, and nothing else. */
static int64_t name(struct state *s)
{
    const struct {
        const char *name;
        int64_t value;
    } names[] = {{"m", s->values->m},
                 {"n", s->values->n},
                 {"k", s->values->k},
                 {"groups", s->values->groups}};
    const char *start = s->at;
    size_t length;

    while (isalnum((unsigned char)*s->at) || *s->at == '_')
        s->at++;
    length = (size_t)(s->at - start);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == length &&
            !strncmp(names[i].name, start, length))
            return names[i].value;
    return fail(s, "unknown name; m, n, k and groups are known");
}

static int64_t parenthesis(struct state *s)
{
    int64_t value;

    s->at++;
    value = binary(s, 0);
    blanks(s);
    if (*s->at != ')')
        return fail(s, "a ')' is missing");
    s->at++;
    return value;
}

static int64_t unary(struct state *s);

/* Apply a minus sign; -INT64_MIN does not exist. */
static int64_t negate(struct state *s)
{
    int64_t value;

    s->at++;
    if (__builtin_sub_overflow((int64_t)0, unary(s), &value) && !s->skip)
        return fail(s, "overflow");
    return value;
}

static int64_t unary(struct state *s)
{
    int64_t value;

    if (s->error)
        return 0;
    if (++s->depth > DEEPEST)
        return fail(s, "nested too deeply");
    blanks(s);
    if (*s->at == '(') {
        value = parenthesis(s);
    } else if (*s->at == '-') {
        value = negate(s);
    } else if (*s->at == '!' && s->at[1] != '=') {
        s->at++;
        value = !unary(s);
    } else if (isdigit((unsigned char)*s->at)) {
        value = number(s);
    } else if (isalpha((unsigned char)*s->at)) {
        value = name(s);
    } else {
        value = fail(s, *s->at ? "a value is expected" : "it ends too early");
    }
    s->depth--;
    return value;
}

enum operation { OR, AND, EQ, NE, LE, GE, LT, GT, ADD, SUB, MUL, DIV, MOD };

/* Longer spellings come first where one begins another. */
static const struct {
    char text[3];
    int level;
    enum operation operation;
} operators[] = {
    {"||", 0, OR}, {"&&", 1, AND}, {"==", 2, EQ}, {"!=", 2, NE}, {"<=", 3, LE},
    {">=", 3, GE}, {"<", 3, LT},   {">", 3, GT},  {"+", 4, ADD}, {"-", 4, SUB},
    {"*", 5, MUL}, {"/", 5, DIV},  {"%", 5, MOD},
};

/* The operator that comes next, or -1. */
static int next_operator(struct state *s)
{
    blanks(s);
    for (int i = 0; i < (int)(sizeof operators / sizeof operators[0]); i++) {
        const char *text = operators[i].text;

        if (*s->at == text[0] && (!text[1] || s->at[1] == text[1]))
            return i;
    }
    return -1;
}

/* Both cases in which C leaves / and % undefined. */
static int64_t divide(struct state *s, int64_t a, int64_t b, int remainder)
{
    if (b == 0)
        return fail(s, "division by zero");
    if (b == -1 && a == INT64_MIN)
        return fail(s, "overflow");
    return remainder ? a % b : a / b;
}

/* Checked arithmetic. */
static int64_t arithmetic(struct state *s, enum operation operation, int64_t a,
                          int64_t b)
{
    int64_t value = 0;
    int overflow;

    if (operation == DIV || operation == MOD)
        return divide(s, a, b, operation == MOD);
    if (operation == ADD)
        overflow = __builtin_add_overflow(a, b, &value);
    else if (operation == SUB)
        overflow = __builtin_sub_overflow(a, b, &value);
    else
        overflow = __builtin_mul_overflow(a, b, &value);
    return overflow ? fail(s, "overflow") : value;
}

/* Skipped parts are parsed but have no value. */
static int64_t apply(struct state *s, enum operation operation, int64_t a,
                     int64_t b)
{
    if (s->skip || s->error)
        return 0;
    switch (operation) {
    case OR:
        return a || b;
    case AND:
        return a && b;
    case EQ:
        return a == b;
    case NE:
        return a != b;
    case LE:
        return a <= b;
    case GE:
        return a >= b;
    case LT:
        return a < b;
    case GT:
        return a > b;
    default:
        return arithmetic(s, operation, a, b);
    }
}

/* Operators of this level and higher ones. */
static int64_t binary(struct state *s, int level)
{
    int64_t left = unary(s);
    int i;

    while (!s->error && (i = next_operator(s)) >= 0 &&
           operators[i].level >= level) {
        enum operation operation = operators[i].operation;
        int known = (operation == AND && !left) || (operation == OR && left);
        int64_t right;

        s->at += strlen(operators[i].text);
        s->skip += known;
        right = binary(s, operators[i].level + 1);
        s->skip -= known;
        left = apply(s, operation, left, right);
    }
    return left;
}

const char *qn_expr_eval(const char *text, const struct qn_expr_values *values,
                         int64_t *result)
{
    struct state s = {.at = text, .values = values};

    *result = binary(&s, 0);
    blanks(&s);
    if (!s.error && *s.at)
        s.error =
            "an operator of C is expected, such as * / % + - == != < <= && ||";
    return s.error;
}

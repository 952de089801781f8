/*
** parse.c: a problem as text, in both directions.
*/
#include "guess.h"
#include "problem.h"
#include "split.h"
#include "types.h"

#include <stdio.h>
#include <string.h>

struct parser {
    struct quern_context *ctx;
    const char *at;
    char word[QN_LONGEST_WORD];
    struct quern_problem *problem;
    const struct qn_recipe *recipe;
    unsigned given; /* bit: index in keys */
};

int qn_parse_word(const char **at, char word[QN_LONGEST_WORD])
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

static int next_word(struct parser *parser)
{
    return qn_parse_word(&parser->at, parser->word);
}

/* g, m, n and k; ranges are checked when all is known. */
static int set_length(struct parser *parser, const char *key, const char *value)
{
    struct quern_problem *p = parser->problem;
    int64_t length;
    const char *end = qn_split_number(value, &length);

    if (!end || *end)
        return qn_error_set(QUERN_EINVAL,
                            "%s=%s: a whole number of at most "
                            "18 digits is expected",
                            key, value);
    if (!strcmp(key, "g"))
        p->groups = length > INT32_MAX ? INT32_MAX : (int)length;
    else
        *(*key == 'm' ? &p->m : *key == 'n' ? &p->n : &p->k) = length;
    return QUERN_OK;
}

/* Any type here; whether the recipe writes it comes later. */
static int set_d(struct parser *parser, const char *key, const char *value)
{
    struct qn_guess guess = {.word = value};
    char hint[128];

    if (qn_type_find(value, &parser->problem->d_type))
        return QUERN_OK;
    for (int type = 1; qn_type_bits(type); type++)
        qn_guess_try(&guess, qn_type_name(type));
    return qn_error_set(QUERN_EINVAL, "%s=%s: not a type%s", key, value,
                        qn_guess_text(&guess, hint, sizeof hint));
}

static int set_layout(struct parser *parser, const char *key, const char *value)
{
    struct quern_problem *p = parser->problem;

    if (qn_layout_find(value, &p->a_major, &p->b_major))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: tn, nn, nt or tt is expected; the first "
                        "letter is B's (t: k-major), the second A's (n: "
                        "k-major)",
                        key, value);
}

static int set_ragged(struct parser *parser, const char *key, const char *value)
{
    if (qn_axis_find(value, &parser->problem->ragged))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s=%s: m, n, k or none is expected", key,
                        value);
}

/* 1 is the number; any stands for a value that each run brings. */
static int set_alpha(struct parser *parser, const char *key, const char *value)
{
    parser->problem->alpha = !strcmp(value, "any");
    if (parser->problem->alpha || !strcmp(value, "1"))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: 1 or any is expected; any is read from "
                        "args.alpha",
                        key, value);
}

static int set_beta(struct parser *parser, const char *key, const char *value)
{
    if (qn_beta_find(value, &parser->problem->beta))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: 0, 1 or any is expected; 1 adds to D, any is "
                        "read from args.beta and multiplies args.c",
                        key, value);
}

/* Bytes; the rule itself is problem.c's. */
static int set_align(struct parser *parser, const char *key, const char *value)
{
    int64_t bytes;
    const char *end = qn_split_number(value, &bytes);

    if (!end || *end || bytes < 1 || bytes > QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL, "%s=%s: 2, 4, 8 or 16 is expected",
                            key, value);
    parser->problem->alignment = bytes == QN_ALIGNMENT ? 0 : (int)bytes;
    return QUERN_OK;
}

/* Letters of operands, in any order; whether they have a group axis comes
   later. */
static int set_pointers(struct parser *parser, const char *key,
                        const char *value)
{
    for (const char *at = value; *at; at++) {
        const char *letter = strchr(QN_LETTERS, *at);

        if (!letter)
            return qn_error_set(QUERN_EINVAL,
                                "%s=%s: letters of operands are expected, like "
                                "b or bd",
                                key, value);
        parser->problem->pointers |= 1 << (letter - QN_LETTERS);
    }
    return QUERN_OK;
}

/* Its syntax is checked when g and the lengths are known. */
static int set_split(struct parser *parser, const char *key, const char *value)
{
    struct quern_problem *p = parser->problem;

    (void)key;
    if (strlen(value) >= sizeof p->split)
        return qn_error_set(QUERN_EINVAL,
                            "split: at most %d characters; "
                            "write the list to a file and give "
                            "split=@FILE",
                            (int)sizeof p->split - 1);
    strcpy(p->split, value);
    return QUERN_OK;
}

static const struct {
    const char *name;
    int (*set)(struct parser *parser, const char *key, const char *value);
    int required;
} keys[] = {
    {"g", set_length, 1},
    {"m", set_length, 1},
    {"n", set_length, 1},
    {"k", set_length, 1},
    {"d", set_d, 0},
    {"layout", set_layout, 0},
    {"ragged", set_ragged, 0},
    {"alpha", set_alpha, 0},
    {"beta", set_beta, 0},
    {"align", set_align, 0},
    {"pointers", set_pointers, 0},
    {"split", set_split, 0},
};

#define NKEYS ((int)(sizeof keys / sizeof keys[0]))

static int key_index(const char *name)
{
    for (int i = 0; i < NKEYS; i++)
        if (!strcmp(keys[i].name, name))
            return i;
    return -1;
}

/* Both kinds of misspelling: of the key, or of the equals sign. */
static int unknown_key(const char *word, int has_value)
{
    struct qn_guess guess = {.word = word};
    char hint[128];

    for (int i = 0; i < NKEYS; i++)
        qn_guess_try(&guess, keys[i].name);
    return qn_error_set(QUERN_EINVAL,
                        "'%s' %s%s; known: g= m= n= k= d= "
                        "layout= ragged= alpha= beta= align= pointers= "
                        "split=",
                        word, has_value ? "is unknown" : "has no value",
                        qn_guess_text(&guess, hint, sizeof hint));
}

/* KEY=VALUE. */
static int parse_pair(struct parser *parser)
{
    char *equals = strchr(parser->word, '=');
    int i;

    if (!equals || !equals[1])
        return unknown_key(parser->word, 0);
    *equals = 0;
    i = key_index(parser->word);
    if (i < 0)
        return unknown_key(parser->word, 1);
    if (parser->given >> i & 1)
        return qn_error_set(QUERN_EINVAL, "%s= is given twice", keys[i].name);
    parser->given |= 1u << i;
    return keys[i].set(parser, keys[i].name, equals + 1);
}

/* The first word. */
static int parse_op(struct parser *parser)
{
    struct qn_guess guess = {.word = parser->word};
    char hint[128];
    int found = next_word(parser);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found)
        return qn_error_set(QUERN_EINVAL, "the problem is empty; for example: "
                                          "fprop bf16 g=8 m=4096 n=2048 "
                                          "k=7168");
    if (qn_op_find(parser->word, &parser->problem->op))
        return QUERN_OK;
    for (int i = 0; qn_op_at(i); i++)
        qn_guess_try(&guess, qn_op_at(i));
    return qn_error_set(QUERN_EINVAL,
                        "op '%s' is unknown%s; known: fprop, "
                        "dgrad, wgrad",
                        parser->word, qn_guess_text(&guess, hint, sizeof hint));
}

/* The second word; it also decides the type of D. */
static int parse_recipe(struct parser *parser)
{
    struct quern_problem *p = parser->problem;
    const struct qn_recipe *recipe;
    int found = next_word(parser);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found || strchr(parser->word, '='))
        return qn_error_set(QUERN_EINVAL, "a recipe is expected after '%s'",
                            qn_op_name(p->op));
    recipe = qn_context_recipe(parser->ctx, parser->word);
    if (!recipe || strlen(parser->word) >= sizeof p->recipe)
        return qn_problem_no_recipe(parser->ctx, parser->word);
    strcpy(p->recipe, parser->word);
    parser->recipe = recipe;
    p->d_type = recipe->default_d;
    return QUERN_OK;
}

void qn_parse_defaults(struct quern_problem *p, const struct qn_recipe *recipe)
{
    static const struct {
        int a_major, b_major, ragged;
    } defaults[] = {
        [QUERN_FPROP] = {QUERN_MAJOR_K, QUERN_MAJOR_K, QUERN_AXIS_M},
        [QUERN_DGRAD] = {QUERN_MAJOR_K, QUERN_MAJOR_MN, QUERN_AXIS_M},
        [QUERN_WGRAD] = {QUERN_MAJOR_MN, QUERN_MAJOR_MN, QUERN_AXIS_K},
    };

    p->a_major = defaults[p->op].a_major;
    p->b_major = defaults[p->op].b_major;
    p->ragged = defaults[p->op].ragged;
    if (recipe && qn_scale_any(p, recipe))
        p->a_major = p->b_major = QUERN_MAJOR_K;
}

/* All other words, in any order, none twice. */
static int parse_pairs(struct parser *parser)
{
    int found;

    while ((found = next_word(parser)) > 0) {
        int code = parse_pair(parser);

        if (code)
            return code;
    }
    if (found < 0)
        return QUERN_EINVAL;
    for (int i = 0; i < NKEYS; i++)
        if (keys[i].required && !(parser->given >> i & 1))
            return qn_error_set(QUERN_EINVAL, "%s= is missing", keys[i].name);
    return QUERN_OK;
}

int quern_problem_parse(struct quern_context *ctx, const char *text,
                        struct quern_problem *problem)
{
    struct quern_problem p = {.op = 0};
    struct parser parser = {.ctx = ctx, .at = text, .problem = &p};
    int code;

    if (!ctx || !text || !problem)
        return qn_error_set(QUERN_EINVAL, "%s is NULL",
                            !ctx    ? "ctx"
                            : !text ? "text"
                                    : "problem");
    code = parse_op(&parser);
    if (!code)
        code = parse_recipe(&parser);
    if (!code) {
        qn_parse_defaults(&p, parser.recipe);
        code = parse_pairs(&parser);
    }
    if (!code)
        code = qn_problem_check(ctx, &p, NULL);
    if (!code)
        code = qn_split_check(&p);
    if (!code)
        *problem = p;
    return code;
}

/* What is not as it follows from op and recipe, each with a blank before it. */
static void print_unusual(const struct quern_problem *p, char *text,
                          size_t size)
{
    struct quern_problem usual = {.op = p->op};
    size_t used = 0;

#define ADD(...) used += (size_t)snprintf(text + used, size - used, __VA_ARGS__)
    if (p->op >= QUERN_FPROP && p->op <= QUERN_WGRAD)
        qn_parse_defaults(&usual, NULL);
    if (p->a_major != usual.a_major || p->b_major != usual.b_major)
        ADD(" layout=%s", qn_layout_name(p->a_major, p->b_major));
    if (p->ragged != usual.ragged)
        ADD(" ragged=%s", qn_axis_name(p->ragged));
    if (p->alpha)
        ADD(" alpha=any");
    if (p->beta)
        ADD(" beta=%s", qn_beta_name(p->beta));
    if (p->alignment && p->alignment != QN_ALIGNMENT)
        ADD(" align=%d", p->alignment);
    if (p->pointers)
        ADD(" pointers=");
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if (p->pointers >> role & 1)
            ADD("%c", QN_LETTERS[role]);
#undef ADD
}

int quern_problem_print(const struct quern_problem *p, char *buffer,
                        size_t size)
{
    char unusual[160] = "";

    print_unusual(p, unusual, sizeof unusual);
    return snprintf(
        buffer, size, "%s %.*s g=%d m=%lld n=%lld k=%lld d=%s%s%s%.*s",
        qn_op_name(p->op), (int)sizeof p->recipe, p->recipe, p->groups,
        (long long)p->m, (long long)p->n, (long long)p->k,
        qn_type_name(p->d_type), unusual, p->split[0] ? " split=" : "",
        (int)sizeof p->split, p->split);
}

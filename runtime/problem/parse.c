/* SPDX-License-Identifier: Apache-2.0 */
/*
** parse.c: a problem as text, in both directions.
*/
#include "problem/problem.h"
#include "problem/renamed.h"
#include "base/context.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/split.h"

#include <stdio.h>
#include <string.h>

struct parser {
    struct quern_context *ctx;
    const char *at;
    char word[QN_LONGEST_WORD];
    struct qn_problem *problem;
    const struct qn_recipe *recipe;
};

/* ------------------------------------------------------- words of any line */

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

int qn_parse_number(const char *key, const char *value, int64_t *out)
{
    const char *end = qn_text_number(value, out);

    if (end && !*end)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: a whole number of at most 18 digits is "
                        "expected",
                        key, value);
}

int qn_parse_int(const char *key, const char *value, int *out)
{
    int64_t wide;
    int code = qn_parse_number(key, value, &wide);

    if (!code && wide > INT32_MAX)
        code = qn_error_set(QUERN_EINVAL, "%s=%s: at most %d is expected", key,
                            value, INT32_MAX);
    if (!code)
        *out = (int)wide;
    return code;
}

int qn_parse_split(const char *value, char *split, size_t size)
{
    if (strlen(value) >= size)
        return qn_error_set(QUERN_EINVAL,
                            "split: at most %d characters; write the list to "
                            "a file and give split=@FILE",
                            (int)size - 1);
    strcpy(split, value);
    return QUERN_OK;
}

int qn_parse_sizes(const char *key, const char *value, int *sizes)
{
    if (qn_sizes_find(value, sizes))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: device, host or fixed is expected; host takes "
                        "args.host_sizes, too, fixed lets graphs freeze them",
                        key, value);
}

const char *qn_parse_dbias_name(int dbias)
{
    return dbias == QUERN_DBIAS_ADD ? "add" : dbias ? "1" : "0";
}

int qn_parse_dbias(const char *key, const char *value, int *dbias)
{
    for (*dbias = 0; *dbias <= QUERN_DBIAS_ADD; ++*dbias)
        if (!strcmp(value, qn_parse_dbias_name(*dbias)))
            return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: 0, 1 or add is expected; 1 overwrites dbias, "
                        "add adds to it",
                        key, value);
}

int qn_parse_recipe(struct quern_context *ctx, const char **at,
                    const char *before, char name[32],
                    const struct qn_recipe **recipe)
{
    char word[QN_LONGEST_WORD];
    int found = qn_parse_word(at, word);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found || strchr(word, '='))
        return qn_error_set(QUERN_EINVAL, "a recipe is expected after '%s'",
                            before);
    *recipe = qn_context_recipe(ctx, word);
    if (!*recipe || strlen(word) >= 32)
        return qn_problem_no_recipe(ctx, word);
    strcpy(name, word);
    return QUERN_OK;
}

int qn_parse_listed(const char *key, const char *value, int *out,
                    int (*find)(const char *, int *), const char *(*at)(int))
{
    struct qn_guess guess = {.word = value};
    char hint[128], list[160] = "";
    size_t used = 0;

    if (find(value, out))
        return QUERN_OK;
    for (int i = 0; at(i) && used < sizeof list; i++) {
        qn_guess_try(&guess, at(i));
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i ? ", " : "", at(i));
    }
    return qn_error_set(QUERN_EINVAL, "%s%s%s: %s is expected%s", key,
                        *key ? "=" : "", value, list,
                        qn_guess_text(&guess, hint, sizeof hint));
}

/* Both kinds of misspelling: of the key, or of the equals sign. */
static int unknown_key(const struct qn_parse_key *keys, const char *word,
                       int has_value)
{
    struct qn_guess guess = {.word = word};
    char hint[128], known[256] = "";
    size_t used = 0;

    for (; keys->name && used < sizeof known; keys++) {
        if (*word)
            qn_guess_try(&guess, keys->name);
        used += (size_t)snprintf(known + used, sizeof known - used,
                                 " %s=", keys->name);
    }
    return qn_error_set(QUERN_EINVAL, "'%s' %s%s; known:%s", word,
                        has_value ? "is unknown" : "has no value",
                        qn_guess_text(&guess, hint, sizeof hint), known);
}

/* KEY=VALUE; `given` has a bit for each key that came before. */
static int parse_pair(const struct qn_parse_key *keys, char *word,
                      unsigned *given, void *target)
{
    char *equals = strchr(word, '=');
    int i = 0, has_value = equals && equals[1];

    if (equals)
        *equals = 0;
    if (qn_renamed_check(word, has_value ? equals + 1 : ""))
        return QUERN_EINVAL;
    while (keys[i].name && strcmp(keys[i].name, word))
        i++;
    if (keys[i].name && !has_value)
        return qn_error_set(QUERN_EINVAL,
                            "'%s%s' has no value; write: %s=VALUE, without "
                            "spaces",
                            word, equals ? "=" : "", word);
    if (!keys[i].name)
        return unknown_key(keys, word, has_value);
    if (*given >> i & 1)
        return qn_error_set(QUERN_EINVAL, "%s= is given twice", keys[i].name);
    *given |= 1u << i;
    return keys[i].set(target, keys[i].name, equals + 1);
}

int qn_parse_pairs(const char *at, const struct qn_parse_key *keys,
                   int all_required, void *target)
{
    char word[QN_LONGEST_WORD];
    unsigned given = 0;
    int found;

    while ((found = qn_parse_word(&at, word)) > 0) {
        int code = parse_pair(keys, word, &given, target);

        if (code)
            return code;
    }
    if (found < 0)
        return QUERN_EINVAL;
    for (int i = 0; keys[i].name && all_required; i++)
        if (keys[i].required && !(given >> i & 1))
            return qn_error_set(QUERN_EINVAL, "%s= is missing", keys[i].name);
    return QUERN_OK;
}

/* ----------------------------------------------------------------- values */

/* g, m, n and k; ranges are checked when all is known. */
static int set_length(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    if (!strcmp(key, "g"))
        return qn_parse_int(key, value, &p->groups);
    return qn_parse_number(key, value,
                           *key == 'm'   ? &p->m
                           : *key == 'n' ? &p->n
                                         : &p->k);
}

/* Any type here; whether the recipe writes it comes later. */
static int set_d(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;
    struct qn_guess guess = {.word = value};
    char hint[128];

    if (qn_type_find(value, &p->d_type))
        return QUERN_OK;
    for (int type = 1; qn_type_bits(type); type++)
        qn_guess_try(&guess, qn_type_name(type));
    return qn_error_set(QUERN_EINVAL, "%s=%s: not a type%s", key, value,
                        qn_guess_text(&guess, hint, sizeof hint));
}

static int set_layout(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    if (qn_layout_find(value, &p->a_major, &p->b_major))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: tn, nn, nt or tt is expected; the first "
                        "letter is B's (t: k-major), the second A's (n: "
                        "k-major)",
                        key, value);
}

static int set_ragged(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    if (qn_axis_find(value, &p->ragged))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s=%s: m, n, k or none is expected", key,
                        value);
}

/* 1 is the number; any stands for a value that each run brings. */
static int set_alpha(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    p->alpha = !strcmp(value, "any");
    if (p->alpha || !strcmp(value, "1"))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: 1 or any is expected; any is read from "
                        "args.alpha",
                        key, value);
}

static int set_beta(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    if (qn_beta_find(value, &p->beta))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: 0, 1 or any is expected; 1 adds to D, any is "
                        "read from args.beta and multiplies args.c",
                        key, value);
}

/* Bytes; the rule itself is problem_check.c's. */
static int set_align(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;
    int64_t bytes;
    const char *end = qn_text_number(value, &bytes);

    if (!end || *end || bytes < 1 || bytes > QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL, "%s=%s: 2, 4, 8 or 16 is expected",
                            key, value);
    p->alignment = bytes == QN_ALIGNMENT ? 0 : (int)bytes;
    return QUERN_OK;
}

/* Letters of operands, in any order; whether they have a group axis comes
   later. */
static int set_pointers(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    for (const char *at = value; *at; at++) {
        const char *letter = strchr(QN_LETTERS, *at);

        if (!letter || letter - QN_LETTERS > QN_ROLE_D)
            return qn_error_set(QUERN_EINVAL,
                                "%s=%s: letters of operands are expected, like "
                                "b or bd",
                                key, value);
        p->pointers |= 1 << (letter - QN_LETTERS);
    }
    return QUERN_OK;
}

int qn_parse_microbatches(const char *key, const char *value, int *microbatches)
{
    int code = qn_parse_int(key, value, microbatches);

    if (!code && !*microbatches)
        *microbatches = -1;
    return code;
}

static int set_microbatches(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_microbatches(key, value, &p->microbatches);
}

static int set_sizes(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_sizes(key, value, &p->sizes);
}

/* bias, prob, saved and dprob. */
static int set_flag(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;
    int *out = *key == 'b'   ? &p->bias
               : *key == 'p' ? &p->probability
               : *key == 'd' ? &p->dprob
                             : &p->saved;

    *out = !strcmp(value, "1");
    if (*out || !strcmp(value, "0"))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s=%s: 0 or 1 is expected", key, value);
}

static int set_dbias(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_dbias(key, value, &p->dbias);
}

static int set_activation(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_listed(key, value, &p->activation, qn_activation_find,
                           qn_activation_at);
}

static int set_dequantize(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_listed(key, value, &p->dequantize, qn_dequantize_find,
                           qn_dequantize_at);
}

/* Of a result; which of them there can be is problem_check.c's to say. */
static int set_copies(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_listed(key, value, &p->copies, qn_copies_find,
                           qn_copies_at);
}

static int set_quantize(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    if (!strcmp(value, "streamed"))
        return qn_error_set(
            QUERN_EINVAL, "quantize=streamed was removed: write quantize=auto");
    return qn_parse_listed(key, value, &p->quantize, qn_strategy_find,
                           qn_strategy_at);
}

/* Its range is problem_check.c's to say. */
static int set_interleave(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    return qn_parse_int(key, value, &p->interleave);
}

/* Its syntax is checked when g and the lengths are known. */
static int set_split(void *problem, const char *key, const char *value)
{
    struct qn_problem *p = problem;

    (void)key;
    return qn_parse_split(value, p->split, sizeof p->split);
}

static const struct qn_parse_key keys[] = {
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
    {"microbatches", set_microbatches, 0},
    {"sizes", set_sizes, 0},
    {"bias", set_flag, 0},
    {"activation", set_activation, 0},
    {"interleave", set_interleave, 0},
    {"prob", set_flag, 0},
    {"saved", set_flag, 0},
    {"dbias", set_dbias, 0},
    {"dprob", set_flag, 0},
    {"copies", set_copies, 0},
    {"dequantize", set_dequantize, 0},
    {"quantize", set_quantize, 0},
    {"split", set_split, 0},
    {NULL, NULL, 0},
};

/* The first word. */
static int parse_op(struct parser *parser)
{
    struct qn_guess guess = {.word = parser->word};
    char hint[128];
    int found = qn_parse_word(&parser->at, parser->word);

    if (found < 0)
        return QUERN_EINVAL;
    if (!found)
        return qn_error_set(QUERN_EINVAL, "the problem is empty; for example: "
                                          "fprop bf16 g=8 m=4096 n=2048 "
                                          "k=7168");
    if (qn_op_find(parser->word, &parser->problem->op))
        return QUERN_OK;
    if (qn_renamed_check("", parser->word))
        return QUERN_EINVAL;
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
    struct qn_problem *p = parser->problem;
    int code = qn_parse_recipe(parser->ctx, &parser->at, qn_op_name(p->op),
                               p->recipe, &parser->recipe);

    if (!code)
        p->d_type = parser->recipe->default_d;
    return code;
}

int qn_problem_parse(struct quern_context *ctx, const char *text,
                     struct qn_problem *problem)
{
    struct qn_problem p = {.op = 0};
    struct parser parser = {.ctx = ctx, .at = text, .problem = &p};
    int code;

    if (!ctx || !text || !problem)
        return qn_error_null("ctx", ctx, "text", text, "problem");
    code = parse_op(&parser);
    if (!code)
        code = parse_recipe(&parser);
    if (!code) {
        qn_problem_defaults(&p, parser.recipe);
        code = qn_parse_pairs(parser.at, keys, 1, &p);
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
static void print_unusual(const struct qn_problem *p, char *text, size_t size)
{
    struct qn_problem usual = {.op = p->op};
    size_t used = 0;

#define ADD(...) used += (size_t)snprintf(text + used, size - used, __VA_ARGS__)
    if (p->op >= QUERN_FPROP && p->op <= QUERN_WGRAD)
        qn_problem_defaults(&usual, NULL);
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
    if (p->microbatches > 0)
        ADD(" microbatches=%d", p->microbatches);
    if (p->sizes)
        ADD(" sizes=%s", qn_sizes_name(p->sizes));
    if (p->quantize)
        ADD(" quantize=%s", qn_strategy_name(p->quantize));
#undef ADD
}

/* The same of what follows the product. */
static void print_epilogue(const struct qn_problem *p, char *text, size_t size)
{
    char interleave[32] = "";

    if (p->interleave)
        snprintf(interleave, sizeof interleave, " interleave=%d",
                 p->interleave);
    snprintf(text, size, "%s%s%s%s%s%s%s%s%s%s%s%s%s", p->bias ? " bias=1" : "",
             p->activation ? " activation=" : "",
             p->activation ? qn_activation_name(p->activation) : "", interleave,
             p->probability ? " prob=1" : "", p->saved ? " saved=1" : "",
             p->dbias ? " dbias=" : "",
             p->dbias ? qn_parse_dbias_name(p->dbias) : "",
             p->dprob ? " dprob=1" : "", p->copies ? " copies=" : "",
             p->copies ? qn_copies_name(p->copies) : "",
             p->dequantize ? " dequantize=" : "",
             p->dequantize ? qn_dequantize_name(p->dequantize) : "");
}

int qn_problem_print(const struct qn_problem *p, char *buffer, size_t size)
{
    char unusual[160] = "", epilogue[160] = "";

    if (!buffer)
        size = 0;
    if (!p)
        return snprintf(buffer, size, "%s", "");
    print_unusual(p, unusual, sizeof unusual);
    print_epilogue(p, epilogue, sizeof epilogue);
    return snprintf(
        buffer, size, "%s %.*s g=%d m=%lld n=%lld k=%lld d=%s%s%s%s%.*s",
        qn_op_name(p->op), (int)sizeof p->recipe, p->recipe, p->groups,
        (long long)p->m, (long long)p->n, (long long)p->k,
        qn_type_name(p->d_type), unusual, epilogue,
        p->split[0] ? " split=" : "", (int)sizeof p->split, p->split);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** lines.c: the fields of each kind of line.
*/
#include "base/error.h"
#include "base/text.h"
#include "problem/field.h"
#include "problem/geometry.h"
#include "problem/moe.h"
#include "problem/problem.h"
#include "problem/route.h"

#include <stdio.h>
#include <string.h>

/* Rows that several lines have; AT is of the structure. */
#define WORD(key, member, list) key, AT(member), QN_FIELD_WORD(list)
#define FLAG(key, member)                                                      \
    WORD(key, member, flag), .expected = "0 or 1 is expected"
#define LENGTH(name)                                                           \
#name, AT(name), &qn_field_length, .flags = QN_FIELD_REQUIRED
#define GROUPS "g", AT(groups), &qn_field_int, .flags = QN_FIELD_REQUIRED
#define WIDE                                                                   \
    .words = &qn_type_words, .least = QUERN_BF16, .most = QUERN_F32,           \
    .flags = QN_FIELD_SHOWN, .usage = "TYPE",                                  \
    .expected = "bf16, f16 or f32 is expected"
#define ACTIVATION WORD("activation", activation, activation), .usage = "NAME"
#define INTERLEAVE "interleave", AT(interleave), &qn_field_int, .usage = "N"
#define DBIAS                                                                  \
    WORD("dbias", dbias, dbias),                                               \
        .expected =                                                            \
            "0, 1 or add is expected; 1 overwrites dbias, add adds to it"
#define MICROBATCHES                                                           \
    "microbatches", AT(microbatches), &qn_field_microbatches,                  \
        .flags = QN_FIELD_VARIES, .usage = "1..8"
#define SIZES                                                                  \
    WORD("sizes", sizes, sizes),                                               \
        .expected = "device, host or fixed is expected; host takes "           \
                    "args.host_sizes, too, fixed lets graphs freeze them"
#define OUTSIDE                                                                \
    WORD("outside", outside, outside),                                         \
        .expected = "keep or zero is expected; zero writes zeros outside "     \
                    "the groups"
#define BAR(name) #name "|"
#define SPLIT                                                                  \
    "split", AT(split), &qn_field_text,                                        \
        .most = 255, .flags = QN_FIELD_VARIES,                                 \
        .usage = QN_SPLITS(BAR) "@FILE|LIST",                                  \
        .expected = "; write the list to a file and give split=@FILE"

/* ---------------------------------------------------------------- products */

static int set_layout(const struct qn_field *f, void *problem,
                      const char *value)
{
    struct qn_problem *p = problem;

    if (qn_layout_find(value, &p->a_major, &p->b_major))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s=%s: tn, nn, nt or tt is expected; the first "
                        "letter is B's (t: k-major), the second A's (n: "
                        "k-major)",
                        f->key, value);
}

static void print_layout(const struct qn_field *f, const void *at, char *text,
                         size_t size)
{
    const int *majors = at;

    (void)f;
    snprintf(text, size, "%s", qn_layout_name(majors[0], majors[1]));
}

/* Bytes; the rule itself is problem_check.c's. */
static int set_align(const struct qn_field *f, void *problem, const char *value)
{
    struct qn_problem *p = problem;
    int64_t bytes;
    const char *end = qn_text_number(value, &bytes);

    if (!end || *end || bytes < 1 || bytes > QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL, "%s=%s: 2, 4, 8 or 16 is expected",
                            f->key, value);
    p->alignment = bytes == QN_ALIGNMENT ? 0 : (int)bytes;
    return QUERN_OK;
}

static void print_align(const struct qn_field *f, const void *at, char *text,
                        size_t size)
{
    if (*(const int *)at != QN_ALIGNMENT)
        qn_field_int.print(f, at, text, size);
}

/* Letters of operands, in any order; whether they have a group axis comes
   later. */
static int set_pointers(const struct qn_field *f, void *problem,
                        const char *value)
{
    struct qn_problem *p = problem;

    for (const char *at = value; *at; at++) {
        const char *letter = strchr(QN_LETTERS, *at);

        if (!letter || letter - QN_LETTERS > QN_ROLE_D)
            return qn_error_set(QUERN_EINVAL,
                                "%s=%s: letters of operands are expected, like "
                                "b or bd",
                                f->key, value);
        p->pointers |= 1 << (letter - QN_LETTERS);
    }
    return QUERN_OK;
}

static void print_pointers(const struct qn_field *f, const void *at, char *text,
                           size_t size)
{
    size_t used = 0;

    (void)f;
    for (int role = QN_ROLE_A; role < QN_ROLES && used + 1 < size; role++)
        if (*(const int *)at >> role & 1)
            text[used++] = QN_LETTERS[role];
    text[used] = 0;
}

/* The same for both operands: they are in sequence. */
static const struct qn_field_kind layout = {set_layout, print_layout,
                                            2 * sizeof(int)};
static const struct qn_field_kind align = {set_align, print_align, sizeof(int)};
static const struct qn_field_kind pointers = {set_pointers, print_pointers,
                                              sizeof(int)};

#define AT(member) QN_FIELD(struct qn_problem, member)

static const struct qn_field product[] = {
    {WORD("", op, product)},
    {WORD("", a_major, major)},
    {WORD("", b_major, major)},
    {GROUPS},
    {LENGTH(m)},
    {LENGTH(n)},
    {"k", AT(k), &qn_field_length,
     .flags = QN_FIELD_REQUIRED | QN_FIELD_VARIES},
    {WORD("d", d_type, type), .least = 1, .expected = "not a type",
     .flags = QN_FIELD_SHOWN | QN_FIELD_GUESSED | QN_FIELD_LATER,
     .usage = "TYPE"},
    {"layout", AT(a_major), &layout, &qn_layout_words, .flags = QN_FIELD_LATER},
    {WORD("ragged", ragged, axis), .expected = "m, n, k or none is expected"},
    {WORD("alpha", alpha, alpha),
     .expected = "1 or any is expected; any is read from args.alpha"},
    {WORD("beta", beta, beta), .flags = QN_FIELD_VARIES,
     .expected = "0, 1 or any is expected; 1 adds to D, any is read from "
                 "args.beta and multiplies args.c"},
    {"align", AT(alignment), &align, .usage = "2|4|8|16"},
    {"pointers", AT(pointers), &pointers, .usage = "LETTERS"},
    {MICROBATCHES},
    {SIZES},
    {OUTSIDE},
    {WORD("quantize", quantize, strategy)},
    {WORD("gather", gather, gather)},
    {"tokens", AT(tokens), &qn_field_length, .usage = "ROWS"},
    {"topk", AT(topk), &qn_field_int, .usage = "K"},
    {FLAG("scatter", scatter)},
    {"lora", AT(lora), &qn_field_int, .usage = "RANK"},
    {FLAG("bias", bias)},
    {ACTIVATION},
    {INTERLEAVE},
    {FLAG("prob", probability)},
    {FLAG("saved", saved)},
    {DBIAS},
    {FLAG("dprob", dprob)},
    {WORD("copies", copies, copies), .usage = "none|rowwise|both"},
    {WORD("dequantize", dequantize, dequantize)},
    {SPLIT},
};

const struct qn_fields qn_line_product = QN_LINE(product, "its list has");

#undef AT

/* ------------------------------------------------------------------- casts */

/* The key depends on the direction: in= of a quantization, out= of values
   again. */
static int set_type(const struct qn_field *f, void *quantization,
                    const char *value)
{
    struct qn_quantization *q = quantization;
    int is_out = *f->key == 'o', wants_out = q->work == QUERN_DEQUANTIZE;

    if (is_out == wants_out && q->work != QUERN_TRANSPOSE)
        return qn_field_word.set(f, q, value);
    return qn_error_set(
        QUERN_EINVAL, "%s=: %s", f->key,
        wants_out                   ? "dequantize has out="
        : q->work == QUERN_QUANTIZE ? "quantize has in="
        : q->work == QUERN_BIAS
            ? "bias has in="
            : "only high-precision values have a type to choose");
}

static const struct qn_field_kind type = {set_type, qn_field_print_word,
                                          sizeof(int)};

#define AT(member) QN_FIELD(struct qn_quantization, member)
#define BIT(work)  (1u << QUERN_##work)
#define MOST       .without = BIT(RESCALE) /* of the lines */

static const struct qn_field cast[] = {
    {WORD("", work, work)},
    {WORD("of", of, of), .flags = QN_FIELD_SHOWN},
    {GROUPS, MOST},
    {LENGTH(m), MOST},
    {LENGTH(k), MOST},
    {"in", AT(type), WIDE, .kind = &type,
     .without = BIT(TRANSPOSE) | BIT(DEQUANTIZE) | BIT(RESCALE)},
    {"out", AT(type), WIDE, .kind = &type, .without = ~BIT(DEQUANTIZE)},
    {WORD("copies", copies, copies), .least = QUERN_ROWWISE,
     .flags = QN_FIELD_SHOWN,
     .expected = "rowwise, columnwise or both is expected",
     .without = ~(BIT(QUANTIZE) | BIT(DEQUANTIZE))},
    {ACTIVATION, MOST},
    {INTERLEAVE, MOST},
    {FLAG("prob", probability), MOST},
    {DBIAS, MOST},
    {FLAG("dprob", dprob), MOST},
    {SIZES, MOST},
    {SPLIT, MOST},
};

const struct qn_fields qn_line_cast = QN_LINE(cast, "its list has");

#undef AT

/* -------------------------------------------------------------------- MLPs */

#define AT(member) QN_FIELD(struct qn_mlp, member)

/* Rows that a layer has, too: before its probabilities, and after. */
#define EXPERTS                                                                \
    {LENGTH(hidden)}, {LENGTH(ffn)},                                           \
        {"in", AT(type), WIDE, .kind = &qn_field_word},                        \
        {"dw", AT(dw_type), WIDE, .kind = &qn_field_word},                     \
        {FLAG("beta", dw_beta)},                                               \
        {WORD("activation", activation, activation), .least = QUERN_SWIGLU,    \
         .flags = QN_FIELD_SHOWN | QN_FIELD_LISTED,                            \
         .expected = "an MLP has one", .usage = "NAME"},                       \
    {                                                                          \
        INTERLEAVE                                                             \
    }
#define TRAINING                                                               \
    {FLAG("bias", bias)}, {FLAG("recompute", recompute)},                      \
        {WORD("grad", forward_only, grad), .expected = "0 or 1 is expected"},  \
        {MICROBATCHES},                                                        \
    {                                                                          \
        WORD("pointers", pointers, mlp_pointers),                              \
            .expected = "none, w, dw or both is expected"                      \
    }

static const struct qn_field mlp[] = {
    {GROUPS}, {LENGTH(m)}, EXPERTS,   {FLAG("prob", probability)},
    TRAINING, {SIZES},     {OUTSIDE}, {SPLIT},
};

const struct qn_fields qn_line_mlp = QN_LINE(mlp, "an MLP can have");

#undef AT

/* ------------------------------------------------------------------ layers */

#define AT(member)  QN_FIELD(struct qn_moe, mlp.member)
#define OWN(member) QN_FIELD(struct qn_moe, member)

static const struct qn_field moe[] = {
    {GROUPS},
    {LENGTH(m)},
    {"topk", OWN(topk), &qn_field_int, .flags = QN_FIELD_REQUIRED,
     .usage = "K"},
    EXPERTS,
    {"experts", OWN(experts), &qn_field_int, .usage = "TOTAL"},
    {"first", OWN(first), &qn_field_int, .usage = "EXPERT"},
    {"index", OWN(index), QN_FIELD_WORD(type), .least = QUERN_I32,
     .most = QUERN_I64, .usage = "i32|i64",
     .expected = "i32 or i64 is expected"},
    {WORD("prob", probability, weighting),
     .expected = "none, x, h or y is expected; probabilities multiply tokens, "
                 "activations or results"},
    {"residual", OWN(residual), QN_FIELD_WORD(flag),
     .expected = "0 or 1 is expected"},
    {"gather", OWN(gather), QN_FIELD_WORD(tokens),
     .expected = "auto, none, x or all is expected; x lets the first product "
                 "read tokens of x through indices, all also that of dh those "
                 "of dy, none permutes them"},
    {"scatter", OWN(scatter), QN_FIELD_WORD(flag),
     .expected =
         "0 or 1 is expected; 1 writes tokens of y and dx to addresses"},
    TRAINING,
    {SPLIT},
};

const struct qn_fields qn_line_moe = QN_LINE(moe, "an MLP can have");

#undef AT

/* ------------------------------------------------------------------ routes */

#define AT(member) QN_FIELD(struct qn_route, member)
#define ONLY(work) .without = ~BIT(work) /* lines with this first word */
#define MOVES      .without = BIT(ROUTE)

static const struct qn_field route[] = {
    {WORD("", work, routing)},
    {GROUPS, ONLY(ROUTE)},
    {LENGTH(m)},
    {"topk", AT(topk), &qn_field_int, .flags = QN_FIELD_REQUIRED, .usage = "K"},
    {LENGTH(k), MOVES},
    {"experts", AT(experts), &qn_field_int, .usage = "TOTAL", ONLY(ROUTE)},
    {"first", AT(first), &qn_field_int, .usage = "EXPERT", ONLY(ROUTE)},
    {"in", AT(type), WIDE, .kind = &qn_field_word, MOVES},
    {FLAG("prob", probability), MOVES},
    {FLAG("dprob", dprob), ONLY(PERMUTE)},
    {FLAG("residual", residual), ONLY(COMBINE)},
    {WORD("index", index, type), .least = QUERN_I32, .most = QUERN_I64,
     .usage = "i32|i64", .expected = "i32 or i64 is expected", ONLY(ROUTE)},
};

const struct qn_fields qn_line_route = QN_LINE(route, "its list has");

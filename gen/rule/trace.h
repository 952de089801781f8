/* SPDX-License-Identifier: Apache-2.0 */
/*
** trace.h: the computation of a scale rule, as a graph.
**
** Kinds of values: floats, the bits of floats, choices (the result of a
** comparison), and scales as they are stored, in e8m0, e4m3,
** bf16 or f16.
*/
#pragma once

#include "qg.h"

enum qg_kind {
    QG_FLOAT,
    QG_BITS,
    QG_CHOICE,
    QG_E8M0,
    QG_E4M3,
    QG_BF16,
    QG_F16,
    QG_KINDS
};

/* X(name, operands, text in C, text in CUDA C); $1 $2 $3 are the operands. */
#define QG_OPS(X)                                                              \
    X(AMAX, 0, "amax", "amax")                                                 \
    X(GLOBAL, 0, "global", "global")                                           \
    X(PREVIOUS, 0, "previous", "previous")                                     \
    X(CONSTANT, 0, "", "")                                                     \
    X(ADD, 2, "($1 + $2)", "__fadd_rn($1, $2)")                                \
    X(SUB, 2, "($1 - $2)", "__fsub_rn($1, $2)")                                \
    X(MUL, 2, "($1 * $2)", "__fmul_rn($1, $2)")                                \
    X(DIV, 2, "($1 / $2)", "__fdiv_rn($1, $2)")                                \
    X(NEG, 1, "(-$1)", "(-$1)")                                                \
    X(BITS, 1, "bits_of($1)", "__float_as_uint($1)")                           \
    X(FROMBITS, 1, "float_of($1)", "__uint_as_float($1)")                      \
    X(BITS_ADD, 2, "($1 + $2)", "($1 + $2)")                                   \
    X(BITS_SUB, 2, "($1 - $2)", "($1 - $2)")                                   \
    X(BITS_NOT, 1, "(~$1)", "(~$1)")                                           \
    X(SHL, 2, "($1 << $2)", "($1 << $2)")                                      \
    X(SHR, 2, "($1 >> $2)", "($1 >> $2)")                                      \
    X(AND, 2, "($1 & $2)", "($1 & $2)")                                        \
    X(OR, 2, "($1 | $2)", "($1 | $2)")                                         \
    X(XOR, 2, "($1 ^ $2)", "($1 ^ $2)")                                        \
    X(NOT, 1, "(!$1)", "(!$1)")                                                \
    X(LT, 2, "($1 < $2)", "($1 < $2)")                                         \
    X(LE, 2, "($1 <= $2)", "($1 <= $2)")                                       \
    X(EQ, 2, "($1 == $2)", "($1 == $2)")                                       \
    X(TO_E4M3, 1, "to_e4m3($1)", "to_e4m3($1)")                                \
    X(FROM_E4M3, 1, "from_e4m3($1)", "from_e4m3($1)")                          \
    X(TO_BF16, 1, "to_bf16($1)", "to_bf16($1)")                                \
    X(FROM_BF16, 1, "from_bf16($1)", "from_bf16($1)")                          \
    X(TO_F16, 1, "to_f16($1)", "to_f16($1)")                                   \
    X(FROM_F16, 1, "from_f16($1)", "from_f16($1)")                             \
    X(SELECT, 3, "($1 ? $2 : $3)", "($1 ? $2 : $3)")

enum qg_op {
#define QG_OP_ENUM(name, operands, c, cuda) QG_OP_##name,
    QG_OPS(QG_OP_ENUM)
#undef QG_OP_ENUM
        QG_OP_COUNT
};
_Static_assert(QG_OP_COUNT <= 32, "uses, below, has a bit for each");

struct qg_node {
    enum qg_op op;
    enum qg_kind kind;
    const struct qg_node *operand[3];
    int operands;
    unsigned int uses; /* bit (1 << enum qg_op): in it or in an operand */
    float value;       /* of a float constant */
    unsigned int bits; /* of any other constant */
    /* for printing */
    int order, count, name;
    int trace; /* the call of a rule that it belongs to */
};

void qg_trace_build(struct qg *); /* into the table on top */
void qg_trace_call_build(struct qg *);
/* condition.c: operands of if, and, or, not and == in a rule. */
void qg_condition_build(struct qg *); /* into the table on top */
/* A spec's text with calls that refuse values of rules there, in q->chunk;
   returns 0 if it needs none. The text must be one that Lua compiles. */
int qg_condition_show(struct qg *, const char *text, size_t length);
void qg_trace_start(struct qg *); /* forget the nodes counted */
const struct qg_node *qg_trace_node(lua_State *, enum qg_op, enum qg_kind,
                                    const struct qg_node *const operand[3]);
/* The operand at `index`, a constant of `kind` for a number. Raises. */
const struct qg_node *qg_trace_operand(lua_State *, int index, enum qg_kind,
                                       const char *what);
const struct qg_node *qg_trace_constant(lua_State *, enum qg_kind, double);
const struct qg_node *qg_trace_at(lua_State *, int index); /* NULL: plain */
int qg_trace_push(lua_State *, const struct qg_node *);
extern const char *const qg_trace_kinds[QG_KINDS];
/* The E8M0 code's 2^(127 - code), which values are multiplied by. */
const struct qg_node *qg_trace_multiplier(lua_State *, const struct qg_node *);

/* A rule as a C function that assigns the stored scale to *sf and returns the
   factor; `head` is all up to its body. */
void qg_trace_print(struct qg *, struct qg_text *, const char *head,
                    const struct qg_node *stored, const struct qg_node *factor,
                    int language);

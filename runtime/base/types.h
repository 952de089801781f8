/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.h: the words of the lists in quern.h and registry.h, in their order.
*/
#ifndef QUERN_BASE_TYPES_H
#define QUERN_BASE_TYPES_H

#include "quern.h"

struct qn_words {
    const char *const *names; /* NULL after the last */
    int count;
};

/* "?" for a value outside the list. */
const char *qn_words_name(const struct qn_words *words, int value);
/* 1 and the value, or 0 for an unknown name. */
int qn_words_find(const struct qn_words *words, const char *name, int *value);

/* qn_op_words has casts, too, qn_product_words has none. */
/* clang-format off */
#define QN_WORDS(X)                                                            \
    X(type) X(op) X(product) X(of) X(axis) X(major) X(alpha) X(beta) X(flag)   \
    X(backend) X(evidence) X(sizes) X(dequantize) X(strategy) X(work)          \
    X(copies) X(activation) X(grad) X(dbias) X(mlp_pointers) X(l2)             \
    X(epilogue) X(outside) X(routing) X(weighting) X(gather) X(tokens)
/* clang-format on */
#define QN_WORDS_DECLARE(what)                                                 \
    extern const struct qn_words qn_##what##_words;                            \
    static inline const char *qn_##what##_name(int value)                      \
    {                                                                          \
        return qn_words_name(&qn_##what##_words, value);                       \
    }                                                                          \
    static inline int qn_##what##_find(const char *name, int *value)           \
    {                                                                          \
        return qn_words_find(&qn_##what##_words, name, value);                 \
    }
QN_WORDS(QN_WORDS_DECLARE)
#undef QN_WORDS_DECLARE

/* As of cuBLAS: both letters are one word. */
extern const struct qn_words qn_layout_words;
const char *qn_layout_name(int a_major, int b_major);
int qn_layout_find(const char *name, int *a_major, int *b_major);

/* How many operands it takes; 1 without one. */
int qn_activation_operands(int activation);

/* Bits of one element; 0 for a value outside the enum. */
extern const unsigned char qn_type_bits_of[QUERN_TYPE_COUNT];
static inline int qn_type_bits(int type)
{
    return type >= 0 && type < QUERN_TYPE_COUNT ? qn_type_bits_of[type] : 0;
}
int qn_type_is_integer(int type); /* of 4 or 8 bits */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.c: the words of the lists in quern.h and registry.h, as tables.
*/
#include "base/types.h"
#include "internal.h"

#include <string.h>

#define WORD(name, word, ...) word,
#define LIST(what, ...)                                                        \
    static const char *const what##_names[] = {__VA_ARGS__ NULL};              \
    const struct qn_words qn_##what##_words = {                                \
        what##_names, (int)(sizeof what##_names / sizeof *what##_names) - 1};

LIST(type, "none", QUERN_TYPES(WORD))
LIST(op, QUERN_OPS(WORD) QN_CASTS(WORD))
LIST(product, QUERN_OPS(WORD))
LIST(of, QN_OFS(WORD))
LIST(axis, QUERN_AXES(WORD))
LIST(major, QUERN_MAJORS(WORD))
LIST(alpha, "1", "any", )
LIST(beta, QUERN_BETAS(WORD))
LIST(flag, "0", "1", )
LIST(grad, "1", "0", )
LIST(backend, QUERN_BACKENDS(WORD))
LIST(evidence, QUERN_EVIDENCES(WORD))
LIST(sizes, QUERN_SIZES(WORD))
LIST(dequantize, QUERN_DEQUANTIZES(WORD))
LIST(strategy, QUERN_QUANTIZES(WORD))
LIST(work, QUERN_WORKS(WORD))
LIST(copies, QUERN_COPIES(WORD))
LIST(activation, QUERN_ACTIVATIONS(WORD))
LIST(dbias, QUERN_DBIASES(WORD))
LIST(mlp_pointers, QUERN_MLP_POINTERS(WORD))
LIST(l2, QUERN_L2S(WORD))
LIST(epilogue, QN_EPILOGUES(WORD))
LIST(outside, QUERN_OUTSIDES(WORD))
LIST(gather, QUERN_GATHERS(WORD))
LIST(tokens, QUERN_TOKENS(WORD))
LIST(routing, QUERN_ROUTINGS(WORD))
LIST(weighting, QUERN_WEIGHTINGS(WORD))

/* cuBLAS's letters: first B, where t is k-major; then A, where n is. */
LIST(layout, "tn", "nn", "nt", "tt", )
static const int layouts[][2] = {{QUERN_MAJOR_K, QUERN_MAJOR_K},
                                 {QUERN_MAJOR_K, QUERN_MAJOR_MN},
                                 {QUERN_MAJOR_MN, QUERN_MAJOR_MN},
                                 {QUERN_MAJOR_MN, QUERN_MAJOR_K}};

const char *qn_words_name(const struct qn_words *words, int value)
{
    return value >= 0 && value < words->count ? words->names[value] : "?";
}

int qn_words_find(const struct qn_words *words, const char *name, int *value)
{
    for (int i = 0; i < words->count; i++)
        if (!strcmp(words->names[i], name)) {
            *value = i;
            return 1;
        }
    return 0;
}

int qn_activation_operands(int activation)
{
#define OPERANDS(name, word, operands) operands,
    static const int operands[] = {QUERN_ACTIVATIONS(OPERANDS)};

    return activation >= 0 && activation < QUERN_ACTIVATION_COUNT
               ? operands[activation]
               : 1;
}

#define BITS(name, word, stored, ...) stored,
const unsigned char qn_type_bits_of[QUERN_TYPE_COUNT] = {0, QUERN_TYPES(BITS)};

int qn_type_is_integer(int type)
{
    return type == QUERN_I8 || type == QUERN_I4 || type == QUERN_U4 ||
           type == QUERN_U8;
}

const char *qn_layout_name(int a_major, int b_major)
{
    for (int i = 0; i < qn_layout_words.count; i++)
        if (layouts[i][0] == a_major && layouts[i][1] == b_major)
            return layout_names[i];
    return "?";
}

int qn_layout_find(const char *name, int *a_major, int *b_major)
{
    int i;

    if (!qn_words_find(&qn_layout_words, name, &i))
        return 0;
    *a_major = layouts[i][0];
    *b_major = layouts[i][1];
    return 1;
}

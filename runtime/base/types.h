/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.h: names and sizes of the enums in quern.h, as tables.
*/
#ifndef QUERN_BASE_TYPES_H
#define QUERN_BASE_TYPES_H

/* Each returns "?" for a value outside its enum. */
const char *qn_type_name(int type);
const char *qn_op_name(int op); /* enum qn_cast_op too */
const char *qn_axis_name(int axis);
const char *qn_layout_name(int a_major, int b_major);
const char *qn_beta_name(int beta);         /* as the problem line has it */
const char *qn_sizes_name(int sizes);       /* the same */
const char *qn_epilogue_name(int epilogue); /* as specs have it */
const char *qn_backend_name(int backend);

/* Each returns 1 and sets the value, or 0 for an unknown name. */
int qn_type_find(const char *name, int *type);
int qn_op_find(const char *name, int *op);
int qn_axis_find(const char *name, int *axis);
int qn_layout_find(const char *name, int *a_major, int *b_major);
int qn_beta_find(const char *name, int *beta);
int qn_sizes_find(const char *name, int *sizes);

/* The same for the words of quantizations: enum quern_work, quern_of,
   quern_copies, quern_activation, quern_dequantize and quern_quantize. */
#define QN_WORDS(X)                                                            \
    X(work) X(of) X(copies) X(activation) X(dequantize) X(strategy)
#define QN_WORD_DECLARE(what)                                                  \
    const char *qn_##what##_name(int value);                                   \
    int qn_##what##_find(const char *name, int *value);                        \
    const char *qn_##what##_at(int i);
QN_WORDS(QN_WORD_DECLARE)
#undef QN_WORD_DECLARE

/* Names in order for messages and guesses; NULL past the last. */
const char *qn_op_at(int i);
const char *qn_layout_at(int i);

/* Bits of one element; 0 for a value outside the enum. */
int qn_type_bits(int type);

#endif

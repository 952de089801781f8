/* SPDX-License-Identifier: Apache-2.0 */
/*
** numbers.h: shared by the tests of numeric pieces.
**
** The pieces, templates/cast and templates/activation, are generated after the
** wrappers in tests/numbers/templates, each of which applies one of them to an
** array, compiled as libquern compiles its host kernels, and loaded. Expected
** results are written apart from them: in double, by tables of all values, or
** by hand.
*/
#pragma once

#include "cases.h"

#include "gen.h"

/* ----------------------------------------------------------------- pieces.c */

enum piece_part { NEAREST, CHANCE, MATH, ACTIVATIONS, DEQUANTIZE, PARTS };

/* Applies one piece to `count` elements, pairs or rows of an array. */
typedef void each_fn(const void *in, void *out, long count);

int pieces_load(void **state); /* before all tests; fails with a message */
int pieces_free(void **state);
/* "to_e4m3": each_to_e4m3; fails the test if there is none. */
each_fn *piece(enum piece_part part, const char *name);
each_fn *piece_of(enum piece_part part, const char *before, const char *type,
                  const char *after);
/* The generator with the wrappers; NULL, and a message, if it does not open. */
struct qg *pieces_generator(void);

float float_from(uint32_t bits);
uint32_t bits_from(float x);

/* ---------------------------------------------------------------- formats.c */

/* A float of `width` bits, `fraction` of them below the leading one. */
struct format {
    const char *name;
    int width, fraction, bias;
    int codes;   /* of finite values that are not negative */
    double most; /* the largest of them */
    int nan;     /* what NaN becomes */
    int ieee;    /* overflow becomes infinity */
};

enum { FORMATS = 7, NARROW = 5, MOST_CODES = 32768 };
extern const struct format formats[FORMATS]; /* the NARROW ones first */

double format_value(const struct format *, int code);
/* To nearest even by search among all values; saturating unless ieee. */
unsigned format_round(const struct format *, float x);

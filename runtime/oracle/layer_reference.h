/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer_reference.h: a grouped MLP in double, token by token.
**
** Written from the definitions only, of values before any quantization: the
** results of templates, casts and products are compared with it.
*/
#pragma once

#include "internal.h"

/* The caller's tensors, in host memory; types as the MLP says. */
struct qn_layer_numbers {
    const struct qn_mlp *mlp;
    const void *x, *dy, *w1, *w2;
    const float *probability, *b1, *b2; /* NULL without */
    float limit, slope, shift;
};

/* All that becomes of one token, and the weights of its group. */
struct qn_layer_reference {
    const struct qn_layer_numbers *in;
    int64_t hidden, ffn, operands;
    int group; /* whose weights are here; -1: none yet */
    float *w1, *w2;
    double *x, *pre, *h, *y;     /* [hidden] [operands] [ffn] [hidden] */
    double *dy, *dh, *dpre, *dx; /* [hidden] [ffn] [operands] [hidden] */
    double dprob, terms;         /* the sum, and that of its squared terms */
    double *memory;
};

/* The result of an activation (enum quern_activation); of the values only
   limit, slope and shift are read. */
double qn_layer_reference_activate(const struct qn_layer_numbers *,
                                   int activation, double a, double b);

/* And how fast that grows along one of them. */
double qn_layer_reference_gradient(const struct qn_layer_numbers *,
                                   int activation, double a, double b,
                                   int second);

/* 0, or -1 when memory ran out; may be freed in both cases. */
int qn_layer_reference_begin(struct qn_layer_reference *,
                             const struct qn_layer_numbers *);
void qn_layer_reference_free(struct qn_layer_reference *);

/* Row `row` of all tokens, which is of `group`. */
void qn_layer_reference_token(struct qn_layer_reference *, int group,
                              int64_t row);

/*
** How far each result may be from it, as 1 - 2 xy / (xx + yy) over all values
** that are compared: the tolerance of NUMERICS for one product, for as many
** products and roundings between x, dy and it. `values` are those of the first
** product in the tokens compared.                    COUPLED: tolerances
*/
struct qn_recipe;
double qn_layer_reference_tolerance(const struct qn_recipe *,
                                    const struct qn_mlp *, double values);

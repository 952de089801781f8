/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer_reference.c: a grouped MLP in double, token by token.
*/
#include "oracle/layer_reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/element.h"
#include "base/types.h"
#include "internal.h"
#include "oracle/tolerance.h"

/* ------------------------------------------------------------- activations */

/* An activation's result, and how it grows along each operand. */
struct act {
    double y, a, b;
};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static struct act swiglu(double a, double b)
{
    const double s = sigmoid(a);

    return (struct act){a * s * b, s * (1 + a * (1 - s)) * b, a * s};
}

static struct act clamped(const struct qn_layer_numbers *in, double a, double b)
{
    const double limit = (double)in->limit, slope = (double)in->slope;
    const double g = a > limit ? limit : a;
    const double u = fmax(-limit, fmin(limit, b)), v = u + (double)in->shift;
    const double s = sigmoid(slope * g);

    return (struct act){
        g * s * v,
        a > limit ? 0 : s * (1 + slope * g * (1 - s)) * v,
        fabs(b) > limit ? 0 : g * s,
    };
}

static struct act situ(double a, double b)
{
    const double t = tanh(a / 4), s = sigmoid(a), u = tanh(b / 25);
    const double p = 1 / cosh(a / 4), q = 1 / cosh(b / 25); /* 1 - tanh^2 */

    return (struct act){
        4 * t * s * 25 * u,
        (p * p * s + 4 * t * s * sigmoid(-a)) * 25 * u,
        4 * t * s * q * q,
    };
}

static struct act geglu(double a, double b)
{
    const double c = sqrt(2 / M_PI), t = tanh(c * (a + 0.044715 * a * a * a));
    const double inner = c * (1 + 3 * 0.044715 * a * a);

    return (struct act){
        a / 2 * (1 + t) * b,
        ((1 + t) / 2 + a / 2 * (1 - t * t) * inner) * b,
        a / 2 * (1 + t),
    };
}

static struct act gelu(double a)
{
    const double below = erfc(-a / sqrt(2)) / 2;

    return (struct act){a * below,
                        below + a * exp(-a * a / 2) / sqrt(2 * M_PI), 0};
}

static struct act single(struct act of_one)
{
    of_one.b = 0;
    return of_one;
}

/* NaN without a reference, which no check passes. */
static struct act activate(const struct qn_layer_numbers *in, int activation,
                           double a, double b)
{
    const double up = a > 0 ? a : 0;

    switch (activation) {
    case QUERN_SWIGLU:
        return swiglu(a, b);
    case QUERN_CLAMPED_SWIGLU:
        return clamped(in, a, b);
    case QUERN_SITU:
        return situ(a, b);
    case QUERN_GEGLU:
        return geglu(a, b);
    case QUERN_REGLU:
        return (struct act){up * b, a > 0 ? b : 0, up};
    case QUERN_SQUARED_RELU:
        return (struct act){up * up, 2 * up, 0};
    case QUERN_RELU:
        return (struct act){up, a > 0, 0};
    case QUERN_SILU:
        return single(swiglu(a, 1));
    case QUERN_GELU:
        return gelu(a);
    case QUERN_GELU_TANH:
        return single(geglu(a, 1));
    default:
        return (struct act){NAN, NAN, NAN};
    }
}

double qn_layer_reference_activate(const struct qn_layer_numbers *in,
                                   int activation, double a, double b)
{
    return activate(in, activation, a, b).y;
}

double qn_layer_reference_gradient(const struct qn_layer_numbers *in,
                                   int activation, double a, double b,
                                   int second)
{
    const struct act act = activate(in, activation, a, b);

    return second ? act.b : act.a;
}

/* ------------------------------------------------------------------- token */

int qn_layer_reference_begin(struct qn_layer_reference *r,
                             const struct qn_layer_numbers *in)
{
    const struct qn_mlp *mlp = in->mlp;
    double **parts[] = {&r->x, &r->y,  &r->dy,  &r->dx,
                        &r->h, &r->dh, &r->pre, &r->dpre};
    size_t used = 0, lengths[8];

    *r = (struct qn_layer_reference){
        .in = in,
        .hidden = mlp->hidden,
        .ffn = mlp->ffn,
        .operands = mlp->ffn * qn_activation_operands(mlp->activation),
        .group = -1,
    };
    for (int i = 0; i < 8; i++) {
        lengths[i] = (size_t)(i < 4 ? r->hidden : i < 6 ? r->ffn : r->operands);
        used += lengths[i];
    }
    r->memory = malloc(used * sizeof(double));
    r->w1 = malloc((size_t)(r->operands * r->hidden) * sizeof(float));
    r->w2 = malloc((size_t)(r->hidden * r->ffn) * sizeof(float));
    if (!r->memory || !r->w1 || !r->w2)
        return -1;
    used = 0;
    for (int i = 0; i < 8; i++) {
        *parts[i] = r->memory + used;
        used += lengths[i];
    }
    return 0;
}

void qn_layer_reference_free(struct qn_layer_reference *r)
{
    free(r->memory);
    free(r->w1);
    free(r->w2);
}

/* The weights of another group. */
static void load_weights(struct qn_layer_reference *r, int group)
{
    const struct qn_layer_numbers *in = r->in;
    const int type = in->mlp->type;
    const int64_t n1 = r->operands * r->hidden, n2 = r->hidden * r->ffn;

    if (group == r->group)
        return;
    r->group = group;
    for (int64_t i = 0; i < n1; i++)
        r->w1[i] = qn_element_load(in->w1, type, (size_t)(group * n1 + i));
    for (int64_t i = 0; i < n2; i++)
        r->w2[i] = qn_element_load(in->w2, type, (size_t)(group * n2 + i));
}

/* out[i] = sum over j of w[i][j] in[j] */
static void multiply(double *out, const float *w, int64_t rows, int64_t columns,
                     const double *in)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;

        for (int64_t j = 0; j < columns; j++)
            sum += (double)w[i * columns + j] * in[j];
        out[i] = sum;
    }
}

/* out[j] = sum over i of w[i][j] in[i] */
static void multiply_back(double *out, const float *w, int64_t rows,
                          int64_t columns, const double *in)
{
    for (int64_t j = 0; j < columns; j++)
        out[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[j] += (double)w[i * columns + j] * in[i];
}

/* Operands of result f among the operands of a token. */
static void place(const struct qn_layer_reference *r, int64_t f, int64_t *a,
                  int64_t *b)
{
    const int run = r->in->mlp->interleave;

    *a = *b = f;
    if (r->operands == r->ffn)
        return;
    if (run)
        *a = f / run * 2 * run + f % run;
    *b = *a + (run ? run : r->ffn);
}

/* Times a factor; nothing without a bias. */
static void add_bias(double *out, const float *bias, int64_t count,
                     double factor)
{
    for (int64_t i = 0; bias && i < count; i++)
        out[i] += (double)bias[i] * factor;
}

/* The group's part of a bias; NULL without. */
static const float *of_group(const struct qn_layer_reference *r,
                             const float *bias, int64_t count)
{
    return bias ? bias + r->group * count : NULL;
}

static void go_forward(struct qn_layer_reference *r, double probability)
{
    multiply(r->pre, r->w1, r->operands, r->hidden, r->x);
    add_bias(r->pre, of_group(r, r->in->b1, r->operands), r->operands, 1);
    for (int64_t f = 0; f < r->ffn; f++) {
        int64_t a, b;

        place(r, f, &a, &b);
        r->h[f] =
            activate(r->in, r->in->mlp->activation, r->pre[a], r->pre[b]).y *
            probability;
    }
    multiply(r->y, r->w2, r->hidden, r->ffn, r->h);
    add_bias(r->y, of_group(r, r->in->b2, r->hidden), r->hidden, probability);
}

static void go_back(struct qn_layer_reference *r, double probability)
{
    const float *b2 = of_group(r, r->in->b2, r->hidden);

    multiply_back(r->dh, r->w2, r->hidden, r->ffn, r->dy);
    r->dprob = r->terms = 0;
    for (int64_t f = 0; f < r->ffn; f++) {
        struct act act;
        int64_t a, b;

        place(r, f, &a, &b);
        act = activate(r->in, r->in->mlp->activation, r->pre[a], r->pre[b]);
        r->dprob += r->dh[f] * act.y;
        r->terms += r->dh[f] * act.y * r->dh[f] * act.y;
        r->dpre[b] = r->dh[f] * probability * act.b;
        r->dpre[a] = r->dh[f] * probability * act.a;
    }
    for (int64_t i = 0; b2 && i < r->hidden; i++)
        r->dprob += r->dy[i] * (double)b2[i];
    multiply_back(r->dx, r->w1, r->operands, r->hidden, r->dpre);
}

void qn_layer_reference_token(struct qn_layer_reference *r, int group,
                              int64_t row)
{
    const struct qn_layer_numbers *in = r->in;
    const double p = in->probability ? (double)in->probability[row] : 1;
    const int type = in->mlp->type;

    load_weights(r, group);
    for (int64_t i = 0; i < r->hidden; i++) {
        const size_t at = (size_t)(row * r->hidden + i);

        r->x[i] = (double)qn_element_load(in->x, type, at);
        r->dy[i] = in->dy ? (double)qn_element_load(in->dy, type, at) : 0;
    }
    go_forward(r, p);
    go_back(r, p);
}

/* --------------------------------------------------------------- tolerance */

double qn_layer_reference_tolerance(const struct qn_recipe *recipe,
                                    const struct qn_mlp *mlp, double values)
{
    /* dx is after three products and pre's error; few values */
    enum { STEPS = 6, FEW = 4000 };
    const int types[] = {recipe->x, recipe->w, recipe->dy, mlp->type};
    const int act = mlp->activation; /* of reglu's gradients, one has steps */
    const double steps = act == QUERN_RELU ? 0.5 : act == QUERN_REGLU ? 0.25 : 0;
    double most = 0;

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        most = fmax(most, qn_tolerance_format(types[i]));
    /* steps where pre's sign changes, as often as it is wrong by much; among
       few values a large one counts */
    if (steps > 0)
        return STEPS * most + sqrt(most) * (steps + FEW / fmax(1, values));
    return STEPS * most;
}

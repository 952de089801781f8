/* SPDX-License-Identifier: Apache-2.0 */
/*
** step_expect.c: a training step in float64, and how near to that the formats
** allow to come.
**
** A number is off by some part of the distance d between its two neighbours in
** the format, which follows from the largest magnitude of its block: nearest
** rounding by a variance of d^2 / 12 (evenly spread over +- d/2), rounding by
** chance, a fraction f of the way up, by d^2 f (1 - f), on average d^2 / 6.
** Errors of different values have nothing to do with each other, so for a sum
** over k of a b the variances add up:
**
**     sum over k of  var(a) b^2 + a^2 var(b) + var(a) var(b)
**
** So much is expected, from the values and the formats only. Left out:
** scales of E4M3 are off by 1/16 at most, and d with them, which makes
** (17/16)^2 = 1.13. The sums, in fp32 or on tensor cores, are 100 times better.
*/
#include "support/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void *qt_step_room(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);

    if (!memory)
        abort();
    return memory;
}

/* ------------------------------------------------------------------ values */

static const double signs[QT_STEP_POINTS] = {1,  1,  1,  -1, 1,  -1, -1, -1,
                                             -1, -1, -1, 1,  -1, 1,  -1, -1};

/* Point i of the transform of v, or with `back` of its inverse. */
double qt_step_transformed(const double v[QT_STEP_POINTS], int i, int back)
{
    double sum = 0;

    for (int j = 0; j < QT_STEP_POINTS; j++)
        sum += v[j] * (back ? 1 : signs[j]) *
               (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1);
    return sum / 4 * (back ? signs[i] : 1);
}

int64_t qt_step_start(const struct qt_step *s, int group)
{
    int64_t start = 0;

    for (int g = 0; g < group; g++)
        start += s->sizes[g];
    return start;
}

/* Row i, column j of a group's x, w or dy. */
static double number(const struct qt_step *s, int of, int group, int64_t i,
                     int64_t j)
{
    if (of == QN_W)
        return (double)s->w[(group * s->outputs + i) * s->features + j];
    i += qt_step_start(s, group);
    return of == QN_X ? (double)s->x[i * s->features + j]
                      : (double)s->dy[i * s->outputs + j];
}

/* --------------------------------------------------------------- operands */

/* A group's A or B as it is multiplied, and the variance of each number. */
struct side {
    int64_t lines, depth;
    double *value, *variance;
};

/* Which tensor each op has as A and B, and whether turned: its columnwise
   tensor. */
static const struct {
    int of, turned;
} sides[][2] = {
    {{QN_X, 0}, {QN_W, 0}}, {{QN_DY, 0}, {QN_W, 1}}, {{QN_DY, 1}, {QN_X, 1}}};

/* The distance between the neighbours of v in a block. Scales are powers of
   two, rounded up, but for those of E4M3. */
static double distance(int type, const struct qn_scaling *s, double v,
                       double most)
{
    const int e4m3 = type == QUERN_E4M3;
    double scale = most / (e4m3 ? 448 : 6);
    int exponent;

    if (s->type != QUERN_E4M3)
        scale = exp2(ceil(log2(scale)));
    frexp(v / scale, &exponent);
    exponent = exponent - 1 > (e4m3 ? -6 : 0) ? exponent - 1 : e4m3 ? -6 : 0;
    return ldexp(scale, exponent - (e4m3 ? 3 : 1));
}

/* `placed`: of values that scales leave where they are among neighbours. */
static double variance(double v, double d, int chance, int placed)
{
    const double f = fabs(v) / d - floor(fabs(v) / d);

    if (placed)
        return d * d * (chance ? f * (1 - f) : fmin(f, 1 - f) * fmin(f, 1 - f));
    if (fabs(v) < d / 2) /* becomes 0, or d at times */
        return chance ? fabs(v) * (d - fabs(v)) : v * v;
    return d * d / (chance ? 6 : 12);
}

/* A block of the side, from line i and depth k on. */
static void spread(const struct side *x, int type, const struct qn_scaling *s,
                   int chance, int placed, int64_t i, int64_t k)
{
    const int64_t lines = i + s->rows < x->lines ? i + s->rows : x->lines;
    const int64_t depth = k + s->k < x->depth ? k + s->k : x->depth;
    double most = 0;

    for (int64_t line = i; line < lines; line++)
        for (int64_t at = k; at < depth; at++)
            most = fmax(most, fabs(x->value[line * x->depth + at]));
    for (int64_t line = i; line < lines && most > 0; line++)
        for (int64_t at = line * x->depth + k; at < line * x->depth + depth;
             at++)
            x->variance[at] =
                variance(x->value[at], distance(type, s, x->value[at], most),
                         chance, placed);
}

static void transform(struct side *x)
{
    double v[QT_STEP_POINTS];

    for (int64_t at = 0; at < x->lines * x->depth; at += QT_STEP_POINTS) {
        memcpy(v, x->value + at, sizeof v);
        for (int i = 0; i < QT_STEP_POINTS; i++)
            x->value[at + i] = qt_step_transformed(v, i, 0);
    }
}

static void make_side(const struct qt_step *s, int op, int role, int group,
                      int placed, struct side *x)
{
    const int of = sides[op][role].of, turned = sides[op][role].turned;
    const int types[] = {s->recipe->x, s->recipe->w, s->recipe->dy};
    const struct qn_scaling *scaling = &s->recipe->scaling[of];
    const int mixed = turned && of != QN_W && scaling->hadamard;
    const int64_t rows = of == QN_W ? s->outputs : s->sizes[group];
    const int64_t columns = of == QN_DY ? s->outputs : s->features;
    const int64_t whole =
        (rows + QT_STEP_POINTS - 1) / QT_STEP_POINTS * QT_STEP_POINTS;

    x->lines = turned ? columns : rows;
    x->depth = !turned ? columns : mixed ? whole : rows;
    x->value = qt_step_room(x->lines * x->depth, sizeof(double));
    x->variance = qt_step_room(x->lines * x->depth, sizeof(double));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            x->value[turned ? j * x->depth + i : i * x->depth + j] =
                number(s, of, group, i, j);
    if (mixed)
        transform(x);
    for (int64_t i = 0; i < x->lines; i += scaling->rows)
        for (int64_t k = 0; k < x->depth; k += scaling->k)
            spread(x, types[of], scaling, scaling->stochastic && !s->nearest,
                   placed, i, k);
}

static void free_side(struct side *x)
{
    free(x->value);
    free(x->variance);
}

/* The formula at the top of this file, for all elements of a product. */
static double expected(const struct side *a, const struct side *b)
{
    double all = 0;

    for (int64_t k = 0; k < a->depth; k++) {
        double sum[4] = {0, 0, 0, 0};

        for (int64_t i = k; i < a->lines * a->depth; i += a->depth) {
            sum[0] += a->value[i] * a->value[i];
            sum[1] += a->variance[i];
        }
        for (int64_t j = k; j < b->lines * b->depth; j += b->depth) {
            sum[2] += b->value[j] * b->value[j];
            sum[3] += b->variance[j];
        }
        all += sum[1] * sum[2] + sum[0] * sum[3] + sum[1] * sum[3];
    }
    return all;
}

/* Float64's y, dx or dw of unquantized values, laid out as the results. */
double *qt_step_reference(const struct qt_step *s, int op)
{
    const int64_t o = s->outputs, f = s->features, t = s->tokens;
    double *ref = qt_step_room(op == QUERN_FPROP   ? t * o
                               : op == QUERN_DGRAD ? t * f
                                                   : s->groups * o * f,
                               sizeof *ref);

    for (int g = 0; g < s->groups; g++)
        for (int64_t i = qt_step_start(s, g); i < qt_step_start(s, g + 1); i++)
            for (int64_t j = 0; j < o; j++)
                for (int64_t k = 0; k < f; k++) {
                    const int64_t at = (g * o + j) * f + k;
                    const double x = (double)s->x[i * f + k];
                    const double dy = (double)s->dy[i * o + j];

                    if (op == QUERN_FPROP)
                        ref[i * o + j] += x * (double)s->w[at];
                    else if (op == QUERN_DGRAD)
                        ref[i * f + k] += dy * (double)s->w[at];
                    else
                        ref[at] += dy * x;
                }
    return ref;
}

/* The square of the expected error of one group's y, dx or dw. */
double qt_step_expected(const struct qt_step *s, int op, int group, int placed)
{
    struct side a, b;
    double all;

    make_side(s, op, QT_A, group, placed, &a);
    make_side(s, op, QT_B, group, placed, &b);
    all = expected(&a, &b);
    free_side(&a);
    free_side(&b);
    return all;
}

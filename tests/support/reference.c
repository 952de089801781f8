/* SPDX-License-Identifier: Apache-2.0 */
/*
** reference.c: the product in float64, and the comparison with it.
**
** A product of two 16-bit values is exact in float64, and its sums are off by
** less than 1e-12 here, far below the tolerance of any kernel under test.
*/
#include "support/case.h"
#include "oracle/tolerance.h"
#include "problem/scale.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 64 };

/* One worker's share: of each group, the rows from worker / workers on. */
struct slice {
    const struct qt_case *c;
    const struct qt_data *data;
    struct qt_place a, b, d, added;
    int worker, workers;
    double *columns; /* [k, n] of one group's B, widened */
    double *row;     /* [n] sums */
    double *sizes;   /* [n] the same of magnitudes */
    int failed;
};

/* How many values are summed: those of copies include their padding. */
static int64_t depth_of(const struct qt_case *c, const struct qt_data *data,
                        int group)
{
    return data->values[QT_B]   ? data->depth[QT_B][group]
           : data->values[QT_A] ? data->depth[QT_A][group]
                                : qt_extent(c, QUERN_AXIS_K, group);
}

/* A row of A or B inside a group: `apart` from one value to the next. */
static void load_row(const struct slice *s, int role, int group, int64_t row,
                     double *out, int64_t apart)
{
    const struct qt_place *p = role == QT_A ? &s->a : &s->b;
    const double *values = s->data->values[role];
    int64_t count = depth_of(s->c, s->data, group);
    int64_t at, step = p->swapped ? p->stride : 1;

    if (values)
        values += s->data->at[role][group] + row * count;
    for (int64_t i = 0; values && i < count; i++)
        out[i * apart] = values[i];
    if (values)
        return;
    at = qt_place_at(s->c, p, role, group, row, 0);
    for (int64_t i = 0; i < count; i++)
        out[i * apart] =
            qt_load(s->data->operand[role], p->type, at + i * step);
}

static void widen_b(const struct slice *s, int group)
{
    int64_t n = qt_extent(s->c, QUERN_AXIS_N, group);

    for (int64_t j = 0; j < n; j++)
        load_row(s, QT_B, group, j, s->columns + j, n);
}

/* The inner loop runs over columns so that it can be vectorized without
   another order of the sums. */
static void sum_row(const struct slice *s, int group, int64_t row, int64_t n)
{
    int64_t k = depth_of(s->c, s->data, group);
    double *a = s->sizes + n;

    load_row(s, QT_A, group, row, a, 1);
    memset(s->row, 0, (size_t)n * sizeof *s->row);
    memset(s->sizes, 0, (size_t)n * sizeof *s->sizes);
    for (int64_t p = 0; p < k; p++) {
        const double *columns = s->columns + p * n;

        for (int64_t j = 0; j < n; j++)
            s->row[j] += a[p] * columns[j];
        for (int64_t j = 0; j < n && s->data->sum; j++)
            s->sizes[j] += fabs(a[p] * columns[j]);
    }
}

/* alpha * sum + beta * C, where they are given. */
static void finish_row(const struct slice *s, int group, int64_t row, int64_t n)
{
    const struct qt_epilogue *e = qt_case_epilogue(s->c);
    const struct qt_data *data = s->data;
    int i = data->scalars > 1 ? group : 0;
    double alpha = e->alpha ? data->alpha[i] : 1;
    double beta = e->beta == QUERN_BETA_ANY ? data->beta[i] : e->beta;
    int role = e->apart ? QT_C : QT_D;

    for (int64_t j = 0; j < n; j++) {
        double value = alpha * s->row[j], more = 0;
        int64_t at = qt_place_at(s->c, &s->d, QT_D, group, row, j);

        if (beta != 0)
            more = beta *
                   qt_load(data->operand[role], s->added.type,
                           qt_place_at(s->c, &s->added, role, group, row, j));
        data->ref[at] = value + more;
        if (data->sum)
            data->sum[at] = fabs(alpha) * s->sizes[j] + fabs(more);
    }
}

/* The rows of a group are split among the workers. */
static void *multiply_slice(void *slice)
{
    struct slice *s = slice;
    const struct qt_case *c = s->c;
    int64_t depth = 0;

    for (int g = 0; g < c->groups; g++)
        if (depth_of(c, s->data, g) > depth)
            depth = depth_of(c, s->data, g);
    s->columns = malloc((size_t)(c->n * depth + 1) * sizeof(double));
    s->row = malloc((size_t)(c->n + 1) * sizeof(double));
    s->sizes = malloc((size_t)(c->n + depth + 1) * sizeof(double));
    s->failed = !s->columns || !s->row || !s->sizes;
    for (int g = 0; g < c->groups && !s->failed; g++) {
        int64_t m = qt_extent(c, QUERN_AXIS_M, g);
        int64_t n = qt_extent(c, QUERN_AXIS_N, g);
        int64_t row = m * s->worker / s->workers;
        int64_t end = m * (s->worker + 1) / s->workers;

        if (row < end && n > 0)
            widen_b(s, g);
        for (; row < end && n > 0; row++) {
            sum_row(s, g, row, n);
            finish_row(s, g, row, n);
        }
    }
    free(s->columns);
    free(s->row);
    free(s->sizes);
    return NULL;
}

static void begin_slice(struct slice *s, const struct qt_case *c,
                        const struct qt_data *data, int worker, int workers)
{
    *s = (struct slice){
        .c = c, .data = data, .worker = worker, .workers = workers};
    qt_place_of(c, QT_A, &s->a);
    qt_place_of(c, QT_B, &s->b);
    qt_place_of(c, QT_D, &s->d);
    qt_place_of(c, qt_case_epilogue(c)->apart ? QT_C : QT_D, &s->added);
}

/* All of D, of which groups take their parts. */
static void expect_zeros(const struct qt_place *d, struct qt_data *data)
{
    for (int64_t at = 0; at < d->elements; at++) {
        if (at % d->stride >= d->columns)
            continue; /* between two rows */
        data->ref[at] = 0;
        if (data->sum)
            data->sum[at] = 0;
    }
}

/* Are elements of D of many magnitudes, so that one bound fits no two? Those
   of integers are few. */
static int by_magnitude(const struct qt_case *c)
{
    const int blocks = !c->alike && qn_scale_blocks(c->recipe);

    return c->fill == QT_EXTREME || (c->fill == QT_NORMAL && blocks);
}

int qt_data_reference(const struct qt_case *c, struct qt_data *data,
                      int threads)
{
    struct slice slices[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    struct qt_place d;
    int made = 0, failed = 0;

    qt_place_of(c, QT_D, &d);
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    data->ref = malloc((size_t)d.elements * sizeof(double) + 1);
    free(data->sum);
    data->sum = NULL;
    if (by_magnitude(c))
        data->sum = malloc((size_t)d.elements * sizeof(double) + 1);
    if (!data->ref || (by_magnitude(c) && !data->sum))
        return -1;
    memset(data->ref, QT_POISON, (size_t)d.elements * sizeof(double));
    if (c->outside && !d.grouped)
        expect_zeros(&d, data);
    for (; made < threads; made++) {
        begin_slice(&slices[made], c, data, made, threads);
        if (pthread_create(&ids[made], NULL, multiply_slice, &slices[made]))
            break;
    }
    /* Work that no thread could be made for. */
    for (int i = made; i < threads; i++) {
        begin_slice(&slices[i], c, data, i, threads);
        multiply_slice(&slices[i]);
        failed |= slices[i].failed;
    }
    for (int i = 0; i < made; i++) {
        pthread_join(ids[i], NULL);
        failed |= slices[i].failed;
    }
    return failed ? -1 : 0;
}

/* ---------------------------------------------------------------- compare */

struct tally {
    double wrong, rounded, norm; /* sums of squares */
};

/* The value rounded once to the type of D. */
static double round_once(int d_type, double value)
{
    if (d_type == QUERN_F32)
        return (float)value;
    if (d_type == QUERN_F16)
        return qt_from_f16(qt_f16((float)value));
    return qt_from_bf16(qt_bf16((float)value));
}

static int64_t longest_k(const struct qt_case *c)
{
    int64_t most = 1;

    for (int g = 0; g < c->groups; g++)
        if (qt_extent(c, QUERN_AXIS_K, g) > most)
            most = qt_extent(c, QUERN_AXIS_K, g);
    return most;
}

/* The bounds of NUMERICS: the host's sums are fp32's in any recipe. COUPLED:
   tolerances */
static struct qn_tolerance tolerance(const struct qt_case *c)
{
    const struct qn_problem p = {
        .op = c->op,
        .d_type = c->d_type,
        .dequantize = c->fp32_sums ? QUERN_DEQUANTIZE_AUTO : c->dequantize};
    const struct qn_recipe plain = {
        .x = QUERN_BF16, .w = QUERN_BF16, .dy = QUERN_BF16};

    return qn_tolerance_of(&p, c->recipe && !c->fp32_sums ? c->recipe : &plain,
                           longest_k(c));
}

/* The bound of one element of D. */
struct bounds {
    double sums;     /* absolute: rounding of the sums */
    double relative; /* the same, to the sum of magnitudes */
    double cast;     /* relative: rounding to the type of D */
    double least;    /* absolute: its denormals */
    int exact;       /* integers: the reference rounded once, to the bit */
};

/*
** Small integers whose sums need no rounding, in any order: the recipe's own
** scales may change them, so the decoded values are checked. An FP8 tensor
** core's accumulator is too narrow for a promise.
*/
static int is_exact(const struct qt_case *c, const struct qt_data *data)
{
    double least = 1, most = 1; /* of units, and of values in these */

    if (c->fill != QT_INTEGER || tolerance(c).sums != QN_SUMS_FULL)
        return 0;
    for (int role = 0; role < 2; role++) {
        int64_t last = c->groups - 1;
        int64_t rows =
            qt_extent(c, role == QT_A ? QUERN_AXIS_M : QUERN_AXIS_N, (int)last);
        int64_t count = data->at[role][last] + rows * data->depth[role][last];
        double unit = 1, largest = 8;

        for (int64_t i = 0; data->values[role] && i < count; i++) {
            double value = fabs(data->values[role][i]);

            while (unit > 0x1p-12 && fmod(value, unit) != 0)
                unit /= 2;
            if (fmod(value, unit) != 0)
                return 0; /* a scale that is no power of two */
            largest = fmax(largest, value);
        }
        least *= unit;
        most *= largest / unit;
    }
    return least > 0x1p-20 && most * (double)longest_k(c) < 0x1p21;
}

/*
** The norm would hide a few wrong elements among many. The values have variance
** 1 (normal) or 24 (integer) and factors up to 3, so a sum is about sqrt(k),
** and a wrong one is off by about that much; quantized integers are smaller,
** and so are the errors of their sums. Extreme values, and others for scales of
** blocks, have magnitudes far apart: each element has its own bound, by the sum
** of its terms'.
*/
static struct bounds find_bounds(const struct qt_case *c,
                                 const struct qt_data *data)
{
    double k = (double)longest_k(c);
    struct bounds b = {.sums = 32 * tolerance(c).sum * sqrt(k),
                       .relative = 4 * tolerance(c).sum,
                       .exact = is_exact(c, data)};

    if (c->fill == QT_INTEGER)
        b.sums *= 24;
    if (qt_case_epilogue(c)->alpha)
        b.sums *= 3;
    if (c->d_type == QUERN_BF16)
        b.cast = 1.0 / 256;
    if (c->d_type == QUERN_F16) {
        b.cast = 1.0 / 2048;
        b.least = 0x1p-24;
    }
    return b;
}

/* Bytes that no kernel may write hold poison still. */
static int untouched(const struct qt_place *p, const void *d, int64_t at)
{
    const unsigned char *bytes = (const unsigned char *)d + at * p->bytes;

    for (int i = 0; i < p->bytes; i++)
        if (bytes[i] != QT_POISON)
            return 0;
    return 1;
}

/* For people: an element of D by its indices. */
static void name_element(const struct qt_place *p, int64_t at, char *text,
                         size_t size)
{
    int64_t matrix = p->grouped && p->pitch ? at / p->pitch : 0;
    int64_t left = at - matrix * p->pitch;

    snprintf(text, size, "d[%lld,%lld,%lld]", (long long)matrix,
             (long long)(left / p->stride), (long long)(left % p->stride));
}

/* Adds to the sums; 0 and a text if the element is off. A NaN fails every
   comparison, so an element that was not written is found here. */
static int compare_element(const struct qt_case *c, const struct qt_data *data,
                           const struct bounds *b, const struct qt_place *p,
                           int64_t at, const void *d, struct tally *sum,
                           struct qt_verdict *verdict)
{
    double ref = data->ref[at];
    double sums = data->sum ? b->relative * data->sum[at] : b->sums;
    double got = qt_load(d, p->type, at), once = round_once(c->d_type, ref);
    char name[96];
    int good;

    sum->wrong += (got - ref) * (got - ref);
    sum->rounded += (once - ref) * (once - ref);
    sum->norm += ref * ref;
    good = b->exact ? got == once
                    : fabs(got - ref) <= sums + b->least + fabs(ref) * b->cast;
    if (good)
        return 1;
    name_element(p, at, name, sizeof name);
    snprintf(verdict->text, sizeof verdict->text, "%s is %.9g, expected %.9g",
             name, got, b->exact ? once : ref);
    return 0;
}

/* Every element of the buffer, from the first to the last. */
static int elements_right(const struct qt_case *c, const struct qt_data *data,
                          const void *d, struct tally *sum,
                          struct qt_verdict *verdict)
{
    struct bounds bounds = find_bounds(c, data);
    struct qt_place p;
    char name[96];

    qt_place_of(c, QT_D, &p);
    for (int64_t at = 0; at < p.elements; at++) {
        if (!isnan(data->ref[at])) {
            if (!compare_element(c, data, &bounds, &p, at, d, sum, verdict))
                return 0;
        } else if (!untouched(&p, d, at)) {
            name_element(&p, at, name, sizeof name);
            snprintf(verdict->text, sizeof verdict->text,
                     "%s is outside every group and was written", name);
            return 0;
        }
    }
    return 1;
}

int qt_compare(const struct qt_case *c, const struct qt_data *data,
               const void *d, struct qt_verdict *verdict)
{
    struct tally sum = {0, 0, 0};
    struct qn_tolerance t = tolerance(c);

    memset(verdict, 0, sizeof *verdict);
    if (!elements_right(c, data, d, &sum, verdict))
        return 0;
    /* No element, or zeros only, which were compared one by one. */
    if (sum.norm == 0)
        return 1;
    verdict->error = sqrt(sum.wrong / sum.norm);
    verdict->rounded = sqrt(sum.rounded / sum.norm);
    if (!(verdict->error <= t.error))
        snprintf(verdict->text, sizeof verdict->text,
                 "the error %.3g exceeds %.3g", verdict->error, t.error);
    else if (t.rounding && !(verdict->error <= 1.1 * verdict->rounded + 1e-6))
        snprintf(verdict->text, sizeof verdict->text,
                 "the error %.3g exceeds 1.1 x %.3g, by rounding only",
                 verdict->error, verdict->rounded);
    return !verdict->text[0];
}

/*
** reference.c: the product in float64, and the comparison with it.
**
** A product of two BF16 values is exact in float64, and its sums are off by
** less than 1e-12 here, far below what any kernel under test may be off.
*/
#include "case.h"

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
    int worker, workers;
    double *columns; /* [k, n] of one group, transposed and widened */
    int failed;
};

static void widen_b(const struct slice *s, int group)
{
    const struct qt_case *c = s->c;
    int64_t stride = c->k + c->b_pad;
    const uint16_t *b = s->data->b + group * c->n * stride;

    for (int64_t j = 0; j < c->n; j++)
        for (int64_t p = 0; p < c->k; p++)
            s->columns[p * c->n + j] = qt_f32(b[j * stride + p]);
}

/* The inner loop runs over columns so that it can be vectorized without
   another order of the sums. */
static void multiply_row(const struct slice *s, int64_t row)
{
    const struct qt_case *c = s->c;
    const uint16_t *a = s->data->a + row * (c->k + c->a_pad);
    double *out = s->data->ref + row * c->n;

    for (int64_t p = 0; p < c->k; p++) {
        double x = qt_f32(a[p]);
        const double *columns = s->columns + p * c->n;

        for (int64_t j = 0; j < c->n; j++)
            out[j] += x * columns[j];
    }
}

/* The rows of a group are split among the workers. */
static void *multiply_slice(void *argument)
{
    struct slice *s = argument;
    const struct qt_case *c = s->c;

    s->columns = malloc(sizeof(double) * (size_t)(c->k * c->n) + 1);
    s->failed = !s->columns;
    for (int g = 0; g < c->groups && !s->failed; g++) {
        int64_t from = c->length[g] * s->worker / s->workers;
        int64_t to = c->length[g] * (s->worker + 1) / s->workers;

        if (from == to)
            continue;
        widen_b(s, g);
        for (int64_t i = from; i < to; i++)
            multiply_row(s, c->start[g] + i);
    }
    free(s->columns);
    return NULL;
}

int qt_data_reference(const struct qt_case *c, struct qt_data *data,
                      int threads)
{
    struct slice slices[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    int made = 0, failed = 0;

    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    data->ref = calloc((size_t)(c->m * c->n) + 1, sizeof(double));
    if (!data->ref)
        return -1;
    for (; made < threads; made++) {
        slices[made] = (struct slice){c, data, made, threads, NULL, 0};
        if (pthread_create(&ids[made], NULL, multiply_slice, &slices[made]))
            break;
    }
    /* What no thread could be made for is done here. */
    for (int i = made; i < threads; i++) {
        slices[i] = (struct slice){c, data, i, threads, NULL, 0};
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

/* One element of D, exactly. */
static double load(const void *d, int d_type, int64_t index)
{
    if (d_type == QUERN_F32)
        return ((const float *)d)[index];
    return qt_f32(((const uint16_t *)d)[index]);
}

/*
** NUMERICS: |d - ref| / |ref| at most max(1e-5, 2e-9 k) into fp32 and 4e-3
** into BF16, and there at most 1.1 times the error of the reference rounded
** once.                                            COUPLED: tolerances
*/
static double tolerance(const struct qt_case *c, int d_type)
{
    return d_type == QUERN_F32 ? fmax(1e-5, 2e-9 * (double)c->k) : 4e-3;
}

/*
** The norm alone would forgive a few wrong elements among many. The values have
** variance 1 (normal) or 24 (integer), so a sum is about scale * sqrt(k), and
** a wrong one is off by about that much.
*/
static double element_bound(const struct qt_case *c, int d_type, double ref)
{
    double bound = 32 * fmax(1e-5, 2e-9 * (double)c->k) * sqrt((double)c->k);

    if (c->fill == QT_INTEGER)
        bound = 0; /* every partial sum is exact */
    return d_type == QUERN_F32 ? bound : bound + fabs(ref) / 256;
}

/* Adds to the sums; 0 and a text at the first element that is off. A NaN fails
   every comparison, so an element that was not written is found here. */
static int compare_row(const struct qt_case *c, const struct qt_data *data,
                       int d_type, const void *d, int64_t row,
                       struct tally *sum, struct qt_verdict *verdict)
{
    const double *ref = data->ref + row * c->n;

    for (int64_t j = 0; j < c->n; j++) {
        double got = load(d, d_type, row * (c->n + c->d_pad) + j);
        double once = qt_f32(qt_bf16((float)ref[j]));
        int exact = c->fill == QT_INTEGER && d_type == QUERN_BF16;

        sum->wrong += (got - ref[j]) * (got - ref[j]);
        sum->rounded += (once - ref[j]) * (once - ref[j]);
        sum->norm += ref[j] * ref[j];
        if (exact ? got == once
                  : fabs(got - ref[j]) <= element_bound(c, d_type, ref[j]))
            continue;
        snprintf(verdict->text, sizeof verdict->text,
                 "d[%lld,%lld] is %.9g, expected %.9g", (long long)row,
                 (long long)j, got, exact ? once : ref[j]);
        return 0;
    }
    return 1;
}

/* Bytes that no kernel may write. */
static int untouched(const struct qt_case *c, const void *d, int d_type,
                     int64_t row, int64_t column, struct qt_verdict *verdict)
{
    size_t size = d_type == QUERN_F32 ? 4 : 2;
    int64_t stride = c->n + c->d_pad;
    const unsigned char *bytes = d;
    size_t from = (size_t)(row * stride + column) * size;
    size_t to = (size_t)((row + 1) * stride) * size;

    for (size_t i = from; i < to; i++) {
        if (bytes[i] == QT_POISON)
            continue;
        snprintf(verdict->text, sizeof verdict->text,
                 "d[%lld,%lld] lies %s and was written", (long long)row,
                 (long long)((i - from) / size) + (long long)column,
                 column ? "between rows" : "outside every group");
        return 0;
    }
    return 1;
}

/* From row 0 to m: what lies between groups is poison still, each group is
   right. Groups are in order, so one walk sees every row once. */
static int rows_right(const struct qt_case *c, const struct qt_data *data,
                      int d_type, const void *d, struct tally *sum,
                      struct qt_verdict *verdict)
{
    int64_t row = 0;

    for (int g = 0; g <= c->groups; g++) {
        int64_t to = g < c->groups ? c->start[g] : c->m;

        for (; row < to; row++)
            if (!untouched(c, d, d_type, row, 0, verdict))
                return 0;
        to += g < c->groups ? c->length[g] : 0;
        for (; row < to; row++)
            if (!compare_row(c, data, d_type, d, row, sum, verdict) ||
                !untouched(c, d, d_type, row, c->n, verdict))
                return 0;
    }
    return 1;
}

int qt_compare(const struct qt_case *c, const struct qt_data *data, int d_type,
               const void *d, struct qt_verdict *verdict)
{
    struct tally sum = {0, 0, 0};

    memset(verdict, 0, sizeof *verdict);
    if (!rows_right(c, data, d_type, d, &sum, verdict))
        return 0;
    /* No element, or zeros alone, which were compared one by one. */
    if (sum.norm == 0)
        return 1;
    verdict->error = sqrt(sum.wrong / sum.norm);
    verdict->rounded = sqrt(sum.rounded / sum.norm);
    if (!(verdict->error <= tolerance(c, d_type)))
        snprintf(verdict->text, sizeof verdict->text,
                 "the error %.3g exceeds %.3g", verdict->error,
                 tolerance(c, d_type));
    else if (d_type == QUERN_BF16 &&
             !(verdict->error <= 1.1 * verdict->rounded + 1e-12))
        snprintf(verdict->text, sizeof verdict->text,
                 "the error %.3g exceeds 1.1 x %.3g, rounding alone",
                 verdict->error, verdict->rounded);
    return !verdict->text[0];
}

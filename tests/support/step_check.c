/* SPDX-License-Identifier: Apache-2.0 */
/* step_check.c: how near a training step comes to float64's, next to the
   formats' own loss (step_expect.c). */
#include "support/step.h"

#include "base/types.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST  1.2 /* times the expected square: 1.13, and 5 % for a sample */
#define LEAST 0.7 /* less: something was not quantized, or not by chance */

enum { POINTS = QT_STEP_POINTS, SEEDS = 64 };

/* A matrix of normal values whose rows and columns differ by powers of two. */
static void draw(float *to, int64_t rows, int64_t columns, double scale,
                 uint64_t *state)
{
    int *powers = qt_step_room(columns, sizeof *powers);

    for (int64_t j = 0; j < columns; j++)
        powers[j] = (int)qt_random_below(state, 3);
    for (int64_t i = 0; i < rows; i++) {
        const int power = (int)qt_random_below(state, 3);

        for (int64_t j = 0; j < columns; j++)
            to[i * columns + j] = (float)ldexp(
                scale * (double)qt_draw(state, QT_NORMAL), power + powers[j]);
    }
    free(powers);
}

/* Squares: of the error of a group's result, and of the one expected. */
struct found {
    double error, expected;
};

static struct found judge(const struct qt_step *s, int op, const double *ref,
                          int group)
{
    const int64_t line = op == QUERN_FPROP ? s->outputs : s->features;
    const int64_t each = s->outputs * s->features;
    const int64_t from =
        op == QUERN_WGRAD ? group * each : qt_step_start(s, group) * line;
    const int64_t end =
        op == QUERN_WGRAD ? from + each : from + s->sizes[group] * line;
    struct found f = {0, qt_step_expected(s, op, group, 0)};

    for (int64_t i = from; i < end; i++) {
        const double e = (double)s->products[op].result[i] - ref[i];

        f.error += e * e;
    }
    return f;
}

/* All groups, and each of them by itself: there so few values count that all
   may be where they are off by most, d/2, of both operands; and of fewer than
   16 tokens the transform makes numbers of one magnitude, with one error, which
   add up like their products. */
static int near(const struct qt_step *s, int op, char *text)
{
    const int mixed = op == QUERN_WGRAD && s->recipe->scaling[QN_X].hadamard;
    double *ref = qt_step_reference(s, op), most;
    struct found all = {0, 0}, one;
    int right = 1;

    for (int g = 0; g < s->groups && right; g++) {
        one = judge(s, op, ref, g);
        all.error += one.error;
        all.expected += one.expected;
        most = 3 * MOST * (mixed && s->sizes[g] < POINTS ? POINTS : 1);
        right = one.error <= most * one.expected; /* of an empty one 0 is */
        if (!right)
            snprintf(text, QT_STEP_TEXT,
                     "%s %s, group %d: %.2f of the error expected",
                     s->recipe->name, qn_op_name(op), g,
                     sqrt(one.error / one.expected));
    }
    if (right) {
        const double ratio = all.error / all.expected;

        right = ratio >= LEAST && ratio <= MOST;
        snprintf(text, QT_STEP_TEXT,
                 "%s %s: %.3f times the square of the error expected",
                 s->recipe->name, qn_op_name(op), ratio);
    }
    free(ref);
    return right;
}

/* ------------------------------------------------------------------- tests */

const struct qn_recipe *qt_step_recipe(int i)
{
    static const char *const names[] = {"fp8_block", "mxfp8", "mxfp4", "nvfp4"};
    const struct qn_recipe *recipe = qn_registry_builtin.recipes;

    if (i >= (int)(sizeof names / sizeof *names))
        return NULL;
    while (strcmp(recipe->name, names[i]))
        recipe++;
    return recipe;
}

static int failed(int code, char *text)
{
    if (code)
        snprintf(text, QT_STEP_TEXT, "%s", quern_errmsg());
    return code != QUERN_OK;
}

/* Groups around the blocks; sides that fill no block of 128. */
static const int64_t sizes[] = {129, 0, 1, 7, 300, 64};

static int begin(struct qt_step *s, int backend, const struct qn_recipe *recipe,
                 char *text)
{
    *s = (struct qt_step){.recipe = recipe,
                          .backend = backend,
                          .groups = 6,
                          .sizes = sizes,
                          .tokens = 501,
                          .features = 160,
                          .outputs = 144};
    return failed(qt_step_begin(s), text);
}

static void draw_all(struct qt_step *s, uint64_t seed)
{
    draw(s->x, s->tokens, s->features, 1, &seed);
    draw(s->w, s->groups * s->outputs, s->features,
         1 / sqrt((double)s->features), &seed);
    draw(s->dy, s->tokens, s->outputs, 1, &seed);
}

/* dw with an error planted: 1 if it is found. */
static int found(const struct qt_step *s, const char *what, char *text)
{
    if (!near(s, QUERN_WGRAD, text))
        return 1;
    snprintf(text, QT_STEP_TEXT, "%s: %s was not found", s->recipe->name, what);
    return 0;
}

/* Inverts the transform: so x is multiplied directly, and dy transformed.
   Group by group, as far as there are 16 tokens. */
static void undo_transform(struct qt_step *s, float *x)
{
    double v[POINTS];

    for (int g = 0; g < s->groups; g++)
        for (int64_t t = 0; t + POINTS <= s->sizes[g]; t += POINTS)
            for (int64_t j = 0; j < s->features; j++) {
                const int64_t at = (qt_step_start(s, g) + t) * s->features + j;

                for (int i = 0; i < POINTS; i++)
                    v[i] = (double)x[at + i * s->features];
                for (int i = 0; i < POINTS; i++)
                    x[at + i * s->features] =
                        (float)qt_step_transformed(v, i, 1);
            }
}

static int find_one_sided(struct qt_step *s, char *text)
{
    float *x = s->x, *other;
    const size_t bytes = s->copies[QN_X].numbers.bytes;
    int right;

    if (!s->recipe->scaling[QN_X].hadamard)
        return 1;
    other = qt_step_room((int64_t)bytes, 1);
    memcpy(other, x, bytes);
    undo_transform(s, other);
    s->x = other;
    right = !failed(qt_step_forward(s), text);
    s->x = x;
    right = right && !failed(qt_step_backward(s, 1), text) &&
            found(s, "no transform of x", text);
    free(other);
    return right;
}

/* Each block of x's columnwise tensor gets the scale of the next one. */
static int find_scales(struct qt_step *s, char *text)
{
    struct qn_memory *sf = &s->copies[QN_X].column[QT_STEP_SF];
    const int type = s->recipe->scaling[QN_X].type;
    const size_t each = type == QUERN_F32 ? sizeof(float) : 1;
    char *bytes = qt_step_room((int64_t)sf->bytes, 1);
    int right =
        !failed(qt_step_forward(s), text) &&
        !failed(qn_memory_read(sf, 0, bytes, sf->bytes), text) &&
        !failed(qn_memory_write(sf, 0, bytes + each, sf->bytes - each), text) &&
        !failed(qt_step_backward(s, 1), text) &&
        found(s, "each block with the next one's scale", text);

    free(bytes);
    return right;
}

int qt_step_gradients(int backend, const struct qn_recipe *recipe, char *text)
{
    struct qt_step s;
    int right = !begin(&s, backend, recipe, text);

    if (right) {
        draw_all(&s, 3);
        right = !failed(qt_step_forward(&s), text) &&
                !failed(qt_step_backward(&s, 1), text);
    }
    for (int op = QUERN_FPROP; op <= QUERN_WGRAD && right; op++)
        right = near(&s, op, text);
    right = right && find_one_sided(&s, text) && find_scales(&s, text);
    qt_step_free(&s);
    return right;
}

/* ------------------------------------------------------------------- seeds */

/* Values whose transform, for 16 tokens of a feature, has 6 as its largest
   magnitude, times 1, 1/2 or 1/4: then all scales are exact. x is of E2M1's own
   values, dy of multiples of 1/32, which are at multiples of 1/64 of the way
   from one of these to the next: there a byte of chance rounds without bias. */
static void draw_placed(const struct qt_step *s, float *to, int64_t columns,
                        int own, uint64_t *state)
{
    static const double numbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    double v[POINTS];

    for (int64_t t = 0; t < s->tokens; t += POINTS)
        for (int64_t j = 0; j < columns; j++) {
            const int power = (int)qt_random_below(state, 3);

            for (int i = 0; i < POINTS; i++)
                v[i] = own ? numbers[qt_random_below(state, 8)] *
                                 (double)(1 - 2 * qt_random_below(state, 2))
                           : (double)(qt_random_below(state, 385) - 192) / 32;
            v[qt_random_below(state, POINTS)] = 6;
            for (int i = 0; i < POINTS; i++)
                to[(t + i) * columns + j] =
                    (float)ldexp(qt_step_transformed(v, i, 1), -power);
        }
}

/* The square of the error of sum / count. */
static double error_of_mean(const double *sum, int count, const double *ref,
                            int64_t length)
{
    double all = 0;

    for (int64_t i = 0; i < length; i++) {
        const double e = sum[i] / count - ref[i];

        all += e * e;
    }
    return all;
}

/* Means over seeds 1, 2, .. (times `step`) of dw. After 1, 4, 16 and 64 of them
   the square of the error, times their number, is to be `single`, the variance
   of one. Rows of dw have errors of their own, each of which is at worst one
   normal number times a vector: a variance of 2 single^2 / outputs at most, of
   which 4 deviations are allowed. 1 if so; `ratio` is the last one's. */
static int means_approach(struct qt_step *s, int step, double single,
                          const double *ref, double *ratio, char *text)
{
    const int64_t length = s->groups * s->outputs * s->features;
    const double allowed = 4 * sqrt(2 / (double)s->outputs);
    double *sum = qt_step_room(length, sizeof *sum);
    int right = 1, ran = 1;

    for (int n = 1; n <= SEEDS && ran; n++) {
        ran =
            !failed(qt_step_backward(s, (uint64_t)(1 + (n - 1) * step)), text);
        for (int64_t i = 0; i < length; i++)
            sum[i] += (double)s->products[QUERN_WGRAD].result[i];
        if (n & (n - 1) || n % 3 == 2)
            continue;
        *ratio = error_of_mean(sum, n, ref, length) * n / single;
        right &= fabs(*ratio - 1) <= allowed;
    }
    free(sum);
    if (ran)
        snprintf(text, QT_STEP_TEXT,
                 "%s: of %d seeds the square of the error of the mean is %.2f "
                 "times what it should be",
                 s->recipe->name, SEEDS, *ratio);
    return ran && right;
}

/* One rounding of dy, and whether the means come nearer with new seeds, or
   with always the same one. */
static int means(int backend, const struct qn_recipe *recipe, int nearest,
                 int step, int approach, char *text)
{
    static const int64_t whole[] = {48, 0, 16, 160};
    struct qt_step s = {.recipe = recipe,
                        .backend = backend,
                        .nearest = nearest,
                        .groups = 4,
                        .sizes = whole,
                        .tokens = 224,
                        .features = 96,
                        .outputs = 256};
    int right = !failed(qt_step_begin(&s), text);
    double single = 0, ratio = 1, *ref;
    uint64_t state = 11;

    if (right) {
        draw_placed(&s, s.x, s.features, 1, &state);
        draw_placed(&s, s.dy, s.outputs, 0, &state);
        for (int g = 0; g < s.groups; g++)
            single += qt_step_expected(&s, QUERN_WGRAD, g, 1);
        ref = qt_step_reference(&s, QUERN_WGRAD);
        right = !failed(qt_step_forward(&s), text) &&
                means_approach(&s, step, single, ref, &ratio, text) == approach;
        right = right && (approach || ratio > SEEDS / 2);
        free(ref);
    }
    qt_step_free(&s);
    return right;
}

int qt_step_seeds(int backend, const struct qn_recipe *recipe, char *text)
{
    return means(backend, recipe, 0, 1, 1, text) &&
           means(backend, recipe, 1, 1, 0, text) &&
           means(backend, recipe, 0, 0, 0, text);
}

/* ---------------------------------------------------------------- descends */

/* The sum of squares of y - target, halved, with weights w - rate * gradient;
   with y, that is written, too. */
static double loss(const struct qt_step *s, const double *gradient, double rate,
                   const double *target, double *y)
{
    const int64_t o = s->outputs, f = s->features;
    double all = 0;

    for (int g = 0; g < s->groups; g++)
        for (int64_t i = qt_step_start(s, g); i < qt_step_start(s, g + 1); i++)
            for (int64_t j = 0; j < o; j++) {
                const int64_t at = (g * o + j) * f;
                double sum = -target[i * o + j];

                for (int64_t k = 0; k < f; k++)
                    sum += (double)s->x[i * f + k] *
                           ((double)s->w[at + k] - rate * gradient[at + k]);
                all += sum * sum / 2;
                if (y)
                    y[i * o + j] = sum;
            }
    return all;
}

static double norm(const double *x, int64_t length)
{
    double all = 0;

    for (int64_t i = 0; i < length; i++)
        all += x[i] * x[i];
    return all;
}

/* The target: the result of other weights. */
static double *draw_target(struct qt_step *s)
{
    float *w = s->w;
    uint64_t state = 9;
    double *target;

    s->w = qt_step_room(s->groups * s->outputs * s->features, sizeof *s->w);
    draw(s->w, s->groups * s->outputs, s->features,
         1 / sqrt((double)s->features), &state);
    target = qt_step_reference(s, QUERN_FPROP);
    free(s->w);
    s->w = w;
    return target;
}

/* The gradient of the loss in float64; dy, of `ref`, comes and goes as fp32. */
static double *exact_gradient(struct qt_step *s, const double *target)
{
    const int64_t length = s->tokens * s->outputs;
    double *dy = qt_step_room(length, sizeof *dy), *gradient;
    double *none =
        qt_step_room(s->groups * s->outputs * s->features, sizeof *none);

    loss(s, none, 0, target, dy);
    for (int64_t i = 0; i < length; i++)
        s->dy[i] = (float)dy[i];
    gradient = qt_step_reference(s, QUERN_WGRAD);
    free(none);
    free(dy);
    return gradient;
}

/* How much dw may be off, as a part of the gradient: what dw's own operands
   are, and dy, which y's are; errors of y have nothing to do with x. */
static double gradient_error(const struct qt_step *s, const double *gradient)
{
    double all = 0;

    for (int g = 0; g < s->groups; g++) {
        double squares = 0;

        for (int64_t i = qt_step_start(s, g) * s->features;
             i < qt_step_start(s, g + 1) * s->features; i++)
            squares += (double)s->x[i] * (double)s->x[i];
        if (s->sizes[g])
            all += qt_step_expected(s, QUERN_WGRAD, g, 0) +
                   qt_step_expected(s, QUERN_FPROP, g, 0) * squares /
                       (double)s->sizes[g];
    }
    return sqrt(MOST * all /
                norm(gradient, s->groups * s->outputs * s->features));
}

/* With a rate of 1 / |x|^2 a step of a gradient g lowers the loss by at least
   rate |g|^2 / 2, since no direction curves more than |x|^2; an error e of g
   changes that by at most rate (|g| |e| + |e|^2 / 2), so by a part of 2 r + r^2
   where r = |e| / |g|. */
static int lowers(struct qt_step *s, const double *target, char *text)
{
    const int64_t length = s->groups * s->outputs * s->features;
    double *exact = exact_gradient(s, target),
           *dw = qt_step_room(length, sizeof *dw);
    double squares = 0, before, down[2], r = 0;
    int right = !failed(qt_step_forward(s), text);

    for (int64_t i = 0; i < s->tokens * s->features; i++)
        squares += (double)s->x[i] * (double)s->x[i];
    for (int64_t i = 0; i < s->tokens * s->outputs; i++)
        s->dy[i] =
            (float)((double)s->products[QUERN_FPROP].result[i] - target[i]);
    right = right && !failed(qt_step_backward(s, 1), text);
    if (right) {
        for (int64_t i = 0; i < length; i++)
            dw[i] = (double)s->products[QUERN_WGRAD].result[i];
        r = gradient_error(s, exact);
        before = loss(s, exact, 0, target, NULL);
        down[0] = before - loss(s, exact, 1 / squares, target, NULL);
        down[1] = before - loss(s, dw, 1 / squares, target, NULL);
        right = down[1] > 0 && fabs(down[1] / down[0] - 1) <= 2 * r + r * r;
        snprintf(text, QT_STEP_TEXT,
                 "%s: a step lowers the loss by %.4f of float64's step; "
                 "%.3f may be missing",
                 s->recipe->name, down[1] / down[0], 2 * r + r * r);
    }
    free(exact);
    free(dw);
    return right;
}

int qt_step_descends(int backend, const struct qn_recipe *recipe, char *text)
{
    struct qt_step s;
    double *target = NULL;
    int right = !begin(&s, backend, recipe, text);

    if (right) {
        draw_all(&s, 5);
        target = draw_target(&s);
        right = lowers(&s, target, text);
    }
    free(target);
    qt_step_free(&s);
    return right;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* fidelity.c: does a quantized tensor hold the values that it was made of? */
#include "oracle/fidelity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/element.h"
#include "base/error.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/scale.h"
#include "oracle/copies.h"
#include "oracle/tolerance.h"

/* ------------------------------------------------------------------- lines */

/* A transform's signs are the recipe's own: its source is known but for
   these, so magnitudes are compared. It is its own inverse. */
enum { RUN = 16 };

static void undo(double *run)
{
    for (int step = 1; step < RUN; step *= 2)
        for (int i = 0; i < RUN; i++)
            if (!(i & step)) {
                const double a = run[i], b = run[i + step];

                run[i] = (a + b) * M_SQRT1_2;
                run[i + step] = (a - b) * M_SQRT1_2;
            }
}

static void undo_line(double *line, int64_t length)
{
    for (int64_t i = 0; i + RUN <= length; i += RUN)
        undo(line + i);
    for (int64_t i = 0; i < length; i++)
        line[i] = fabs(line[i]);
}

/* Energies of a line before, after, and of the difference. */
struct energy {
    double before, after, gap;
};

static struct energy compare(const double *x, const double *y, int64_t count)
{
    struct energy e = {0, 0, 0};

    for (int64_t i = 0; i < count; i++) {
        e.before += x[i] * x[i];
        e.after += y[i] * y[i];
        e.gap += (x[i] - y[i]) * (x[i] - y[i]);
    }
    return e;
}

/* ------------------------------------------------------------------- copies */

struct judge {
    const struct qn_fidelity *f;
    struct qn_decode decode;
    int column, hadamard;
    int64_t lines, length; /* of all groups; of the longest line */
    double *x, *y;
    int padded; /* padding is zero */
};

/* COUPLED: copies */
void qn_fidelity_geometry(const struct qn_fidelity *f, struct qn_geometry *g)
{
    static const int ops[3][2] = {[QN_X] = {QUERN_FPROP, QUERN_WGRAD},
                                  [QN_W] = {QUERN_FPROP, QUERN_DGRAD},
                                  [QN_DY] = {QUERN_DGRAD, QUERN_WGRAD}};
    const struct qn_quantization *q = &f->q;
    const int column = q->copies == QUERN_COLUMNWISE;
    struct qn_recipe both = *f->recipe; /* also if dgrad reads rowwise */
    struct qn_problem p = {.op = ops[q->of][column], .groups = q->groups};
    const int tokens_k = p.op == QUERN_WGRAD;
    const int role =
        q->of == QN_W || (q->of == QN_X && column) ? QN_ROLE_B : QN_ROLE_A;

    memcpy(p.recipe, q->recipe, sizeof p.recipe);
    p.ragged = tokens_k ? QUERN_AXIS_K : QUERN_AXIS_M;
    p.m = p.n = column ? q->k : q->m;
    p.k = column ? q->m : q->k;
    p.d_type = f->recipe->default_d;
    both.scaling[QN_W].packed = 0;
    qn_geometry_of(&p, &both, role, g);
    if (g->sf.scaling)
        g->sf.scaling = &f->recipe->scaling[q->of];
}

static int64_t lines_of(const struct judge *j, int group)
{
    const struct qn_quantization *q = &j->f->q;

    return j->column ? q->k : q->of == QN_W ? q->m : j->f->sizes[group];
}

static int64_t length_of(const struct judge *j, int group)
{
    const struct qn_quantization *q = &j->f->q;

    return !j->column ? q->k : q->of == QN_W ? q->m : j->f->sizes[group];
}

/* The values of a line: a row, or a feature of all rows. */
static void load(const struct judge *j, int group, int64_t line, double *x)
{
    const struct qn_quantization *q = &j->f->q;
    const int64_t first = q->of == QN_W ? group * q->m : j->f->starts[group];

    for (int64_t i = 0; i < length_of(j, group); i++) {
        const int64_t row = j->column ? i : line, at = j->column ? line : i;

        x[i] = (double)qn_element_load(j->f->numbers, q->type,
                                       (size_t)((first + row) * q->k + at));
    }
}

static struct energy judge_line(struct judge *j, int group, int64_t line)
{
    const int64_t length = length_of(j, group);
    const int64_t whole =
        j->hadamard ? qn_quantize_round_up(length, RUN) : length;
    const int64_t all = qn_decode_length(&j->decode, group);

    memset(j->x, 0, (size_t)j->length * sizeof *j->x);
    load(j, group, line, j->x);
    qn_decode_row(&j->decode, group, line, j->y);
    for (int64_t i = whole; i < all; i++)
        j->padded &= j->y[i] >= 0 && j->y[i] <= 0;
    if (j->hadamard) {
        undo_line(j->y, whole);
        for (int64_t i = 0; i < length; i++)
            j->x[i] = fabs(j->x[i]);
    }
    return compare(j->x, j->y, length);
}

/* The next line to check; the last one of a group is checked. */
static int64_t next_line(int64_t line, int64_t skip, int64_t last)
{
    return line < last && line + skip > last ? last : line + skip;
}

/* Lines of all groups, about `most` of them, and the sum. Returns how many. */
static int64_t judge_lines(struct judge *j, int64_t most, struct energy *each,
                           struct energy *sum)
{
    const struct qn_fidelity *f = j->f;
    const int64_t skip = j->lines / most + 1;
    int64_t count = 0;

    for (int g = 0; g < f->q.groups; g++) {
        const int64_t last = lines_of(j, g) - 1;

        for (int64_t i = 0; i <= last; i = next_line(i, skip, last)) {
            const struct energy e = judge_line(j, g, i);

            sum->before += e.before;
            sum->after += e.after;
            sum->gap += e.gap;
            each[count++] = e;
        }
    }
    return count;
}

/* Do lines share scales? */
static int shares(const struct qn_scaling *s)
{
    return s->span != QN_SPAN_ROW && (s->span != QN_SPAN_BLOCK || s->rows > 1);
}

/* A line that shares its scales is compared with the average of lines, as all
   of its values may be too small for them. */
static int conclude(const struct judge *j, const struct energy *each,
                    int64_t count, const struct energy *sum, double tolerance,
                    double *error)
{
    enum { SLACK = 8 };
    const double usual = count && shares(&j->f->recipe->scaling[j->f->q.of])
                             ? sum->before / (double)count
                             : 0;
    int held = j->padded;

    *error = sum->gap;
    if (sum->before + sum->after > 0)
        *error /= sum->before + sum->after;
    for (int64_t i = 0; i < count; i++)
        held &=
            each[i].gap <= SLACK * tolerance * 2 * fmax(each[i].before, usual);
    return held && *error <= tolerance;
}

/* Room for the longest line, and for all that are checked. */
static int begin(struct judge *j, int64_t most, struct energy **each)
{
    const int groups = j->f->q.groups;
    int64_t longest = 0;

    for (int i = 0; i < groups; i++) {
        const int64_t length = qn_decode_length(&j->decode, i);

        longest = length > longest ? length : longest;
        j->lines += lines_of(j, i);
    }
    j->length = longest + RUN;
    j->x = malloc((size_t)j->length * sizeof *j->x);
    j->y = malloc((size_t)j->length * sizeof *j->y);
    *each = malloc((size_t)(most + 2 * groups + 1) * sizeof **each);
    return j->x && j->y && *each ? QUERN_OK : qn_error_memory();
}

int qn_fidelity_judge(const struct qn_fidelity *f, double tolerance,
                      int64_t most, double *error, int *held)
{
    struct judge j = {.f = f, .padded = 1};
    struct energy *each = NULL, sum = {0, 0, 0};
    struct qn_geometry g;
    int64_t count;
    int code;

    qn_fidelity_geometry(f, &g);
    j.column = f->q.copies == QUERN_COLUMNWISE;
    j.hadamard = j.column && f->recipe->scaling[f->q.of].hadamard;
    qn_decode_begin(&j.decode, &g, f->copy, f->q.groups, f->starts, f->sizes);
    code = begin(&j, most, &each);
    if (!code) {
        count = judge_lines(&j, most, each, &sum);
        *held = conclude(&j, each, count, &sum, tolerance, error);
    }
    free(j.x);
    free(j.y);
    free(each);
    return code;
}

/* --------------------------------------------------------------- tolerance */

/* A cast and its inverse, both by the host. */
struct trip {
    struct quern_context *ctx;
    struct qn_quantization q;
    int64_t sizes[QUERN_MAX_GROUPS];
    const void *numbers; /* NULL: random ones of this deviation */
    float deviation;
    struct qn_call there, back;
};

static int fill(void *trip, const struct quern_operand *o, void *to,
                size_t bytes)
{
    const struct trip *t = trip;
    const struct qn_recipe *recipe = qn_context_recipe(t->ctx, t->q.recipe);
    const float factor = qn_tolerance_factor(qn_quantize_element(&t->q, recipe),
                                             4 * t->deviation);

    if (o->arg != QUERN_ARG_INPUT)
        return qn_copies_state(o, (float[]){factor, 1 / factor}, 1, to, bytes);
    if (!t->numbers)
        return qn_call_draw(&t->there, o, to, bytes, 1, t->deviation);
    memcpy(to, t->numbers, bytes);
    return QUERN_OK;
}

/* One direction; the inverse begins with the tensors that the cast made. */
static int go(struct trip *t, struct qn_call *call, int work)
{
    const struct qn_call_data data = {
        .sizes = t->sizes, .groups = t->q.groups, .fill = fill, .user = t};
    struct qn_line line = {.kind = QN_LINE_CAST, .of.cast = t->q};

    line.of.cast.work = work;
    for (int arg = QUERN_ARG_ROWWISE; arg <= QUERN_ARG_COLUMNWISE_GLOBAL; arg++)
        if (call == &t->back)
            qn_call_lend(call, arg, &t->there, arg);
    return qn_call_line(call, t->ctx, &line, QUERN_BACKEND_HOST, &data);
}

/* Values of one feature: transformed values are transformed back along a
   group's tokens; the last few tokens may be left out. */
static struct energy lost(const struct trip *t, int hadamard, int64_t first,
                          int64_t rows, int64_t feature)
{
    const struct qn_quantization *q = &t->q;
    const void *in = t->there.memory[QUERN_ARG_INPUT].data;
    const void *out = t->back.memory[QUERN_ARG_OUTPUT].data;
    struct energy sum = {0, 0, 0}, e;
    double x[RUN], y[RUN];

    for (int64_t at = 0; at < rows; at += RUN) {
        const int count = rows - at < RUN ? (int)(rows - at) : RUN;

        if (hadamard && count < RUN)
            break;
        for (int i = 0; i < count; i++) {
            const size_t from = (size_t)((first + at + i) * q->k + feature);

            x[i] = (double)qn_element_load(in, q->type, from);
            y[i] = (double)qn_element_load(out, q->type, from);
            x[i] = hadamard ? fabs(x[i]) : x[i];
        }
        if (hadamard)
            undo_line(y, RUN);
        e = compare(x, y, count);
        sum.before += e.before;
        sum.after += e.after;
        sum.gap += e.gap;
    }
    return sum;
}

static double loss_of(const struct trip *t, int hadamard)
{
    const struct qn_quantization *q = &t->q;
    struct energy sum = {0, 0, 0}, e;
    int64_t first = 0;

    for (int g = 0; g < q->groups; first += t->sizes[g++])
        for (int64_t feature = 0; feature < q->k; feature++) {
            e = lost(t, hadamard, first, t->sizes[g], feature);
            sum.before += e.before;
            sum.after += e.after;
            sum.gap += e.gap;
        }
    return sum.before > 0 ? sum.gap / (sum.before + sum.after) : 0;
}

/* Compare the given values and groups if few; a sample of many loses about
   as much: then 0, and values must be drawn. */
static int set_out(struct trip *t, const struct qn_fidelity *f)
{
    enum { MOST = 1 << 22, ROWS = 256 };
    const int weights = f->q.of == QN_W;
    struct qn_quantization *q = &t->q;
    int whole = 1;

    *q = f->q;
    q->work = QUERN_QUANTIZE;
    q->dbias = q->dprob = q->probability = q->sizes = 0;
    if (q->m * q->k > MOST / (weights ? q->groups : 1)) {
        whole = 0;
        q->groups = 1;
        q->m = q->m < ROWS ? q->m : ROWS;
        q->k = q->k < MOST / ROWS ? q->k : MOST / ROWS;
    }
    for (int g = 0; g < q->groups; g++)
        t->sizes[g] = weights || !whole || !f->sizes ? q->m : f->sizes[g];
    return whole;
}

/* A rule that cuts values at two thirds of their deviation loses as much; a
   cast that does not work, more. */
#define MOST_LOSS 0.25

int qn_fidelity_tolerance(struct quern_context *ctx,
                          const struct qn_fidelity *f, float scale,
                          double *tolerance)
{
    const struct qn_recipe *r = f->recipe;
    const int types[] = {r->x, r->w, r->dy};
    struct trip t = {
        .ctx = ctx, .deviation = scale, .there.alike = !qn_scale_blocks(r)};
    double loss = 0;
    int code;

    *tolerance = qn_tolerance_format(types[f->q.of]);
    t.numbers = set_out(&t, f) ? f->numbers : NULL;
    code = go(&t, &t.there, QUERN_QUANTIZE);
    if (!code)
        code = go(&t, &t.back, QUERN_DEQUANTIZE);
    if (!code)
        loss = loss_of(&t, f->q.copies == QUERN_COLUMNWISE &&
                               r->scaling[f->q.of].hadamard);
    qn_call_free(&t.back);
    qn_call_free(&t.there);
    if (1.25 * loss > *tolerance) /* chance leaves a little between two draws */
        *tolerance = fmin(1.25 * loss, MOST_LOSS);
    /* without a compiler for the host's casts only the format tells */
    return code == QUERN_ECOMPILE || code == QUERN_EMISSING ? QUERN_OK : code;
}

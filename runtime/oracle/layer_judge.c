/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer_judge.c: are the results of a grouped MLP right?
*/
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "oracle/fidelity.h"
#include "oracle/layer.h"
#include "oracle/layer_reference.h"
#include "oracle/tolerance.h"

enum { Y, DX, DPROB, DW1, DW2, DB1, DB2, RESULTS };
static const struct {
    const char *name;
    int arg;
} results[RESULTS] = {
    {"y", QUERN_ARG_Y},     {"dx", QUERN_ARG_DX},   {"dprob", QUERN_ARG_DPROB},
    {"dw1", QUERN_ARG_DW1}, {"dw2", QUERN_ARG_DW2}, {"db1", QUERN_ARG_DB1},
    {"db2", QUERN_ARG_DB2},
};

/* Lines of dw that are compared of each group. */
enum { LINES = 64 };

/* Rounding by chance loses twice as much as rounding to nearest. */
#define CUT 2.5

struct judge {
    struct qn_layer *l;
    struct qn_layer_reference reference;
    double gap[RESULTS], sum[RESULTS]; /* of squares */
    int64_t rows[RESULTS], values[RESULTS];
    double *dw[RESULTS]; /* of one group: [LINES, columns]; db: [columns] */
    void *line;          /* the values read */
};

/* Values of a result, from element `at` on, and expected ones. If terms of
   both signs cancel out, the error is compared with their squares, `least`. */
static int compare_sums(struct judge *j, int result, size_t at, size_t count,
                        int type, const double *want, double least)
{
    const size_t bytes = (size_t)qn_type_bits(type) / 8;
    int code = qn_memory_read(&j->l->call.memory[results[result].arg],
                              at * bytes, j->line, count * bytes);

    for (size_t i = 0; i < count && !code; i++) {
        const double got = (double)qn_element_load(j->line, type, i);

        j->gap[result] += (want[i] - got) * (want[i] - got);
        j->sum[result] += fmax(want[i] * want[i] + got * got, least);
    }
    j->rows[result]++;
    j->values[result] += (int64_t)count;
    return code;
}

static int compare(struct judge *j, int result, size_t at, size_t count,
                   int type, const double *want)
{
    return compare_sums(j, result, at, count, type, want, 0);
}

/* y, dx and dprob of the token that was computed last. */
static int compare_token(struct judge *j, int64_t row)
{
    const struct qn_mlp *mlp = &j->l->mlp;
    const struct qn_layer_reference *r = &j->reference;
    const size_t hidden = (size_t)mlp->hidden;
    const size_t at = (size_t)(row * j->l->pitch);
    int code = compare(j, Y, at, hidden, mlp->type, r->y);

    if (code || mlp->forward_only)
        return code;
    code = compare(j, DX, at, hidden, mlp->type, r->dx);
    if (!code && mlp->probability)
        code = compare_sums(j, DPROB, (size_t)row, 1, QUERN_F32, &r->dprob,
                            2 * r->terms);
    return code;
}

/* --------------------------------------------------------------- gradients */

static int64_t lines_of(const struct judge *j, int result)
{
    return result == DW1 ? j->reference.operands : j->reference.hidden;
}

static int64_t columns_of(const struct judge *j, int result)
{
    return result == DW1 ? j->reference.hidden : j->reference.ffn;
}

/* The i-th checked line; past the last: their count. */
static int64_t line_at(const struct judge *j, int result, int64_t i)
{
    const int64_t lines = lines_of(j, result);

    return lines <= LINES ? i : i * (lines - 1) / (LINES - 1);
}

static int64_t count_lines(const struct judge *j, int result)
{
    const int64_t lines = lines_of(j, result);

    return lines < LINES ? lines : LINES;
}

/* The values before, or nothing. */
static void begin_lines(struct judge *j, int result, int group)
{
    const struct qn_layer *l = j->l;
    const int64_t columns = columns_of(j, result);
    const void *before = l->call.host[results[result].arg];

    for (int64_t i = 0; i < count_lines(j, result); i++) {
        const int64_t first =
            (group * lines_of(j, result) + line_at(j, result, i)) * columns;

        for (int64_t k = 0; k < columns; k++)
            j->dw[result][i * columns + k] =
                before ? (double)qn_element_load(before, l->mlp.dw_type,
                                                 (size_t)(first + k))
                       : 0;
    }
}

/* The token's part of the lines. */
static void add_lines(struct judge *j, int result, int64_t row)
{
    const struct qn_layer_reference *r = &j->reference;
    const double *left = result == DW1 ? r->dpre : r->dy;
    const double *right = result == DW1 ? r->x : r->h;
    const int64_t columns = columns_of(j, result);

    (void)row;
    for (int64_t i = 0; i < count_lines(j, result); i++)
        for (int64_t k = 0; k < columns; k++)
            j->dw[result][i * columns + k] +=
                left[line_at(j, result, i)] * right[k];
}

static int compare_lines(struct judge *j, int result, int group)
{
    const int64_t columns = columns_of(j, result);
    int code = QUERN_OK;

    for (int64_t i = 0; i < count_lines(j, result) && !code; i++)
        code = compare(
            j, result,
            (size_t)((group * lines_of(j, result) + line_at(j, result, i)) *
                     columns),
            (size_t)columns, j->l->mlp.dw_type, j->dw[result] + i * columns);
    return code;
}

/* ------------------------------------------------------------------ biases */

static int64_t bias_length(const struct judge *j, int result)
{
    return result == DB1 ? j->reference.operands : j->reference.hidden;
}

/* The values before, or nothing. */
static void begin_bias(struct judge *j, int result, int group)
{
    const int64_t count = bias_length(j, result);
    const float *before = j->l->call.host[results[result].arg];

    for (int64_t i = 0; i < count; i++)
        j->dw[result][i] = before ? (double)before[group * count + i] : 0;
}

/* The part of a token in row `row`. */
static void add_bias(struct judge *j, int result, int64_t row)
{
    const struct qn_layer_reference *r = &j->reference;
    const double *from = result == DB1 ? r->dpre : r->dy;
    const float *p = result == DB1 ? NULL : r->in->probability;

    for (int64_t i = 0; i < bias_length(j, result); i++)
        j->dw[result][i] += from[i] * (p ? (double)p[row] : 1);
}

static int compare_bias(struct judge *j, int result, int group)
{
    const size_t count = (size_t)bias_length(j, result);

    return compare(j, result, (size_t)group * count, count, QUERN_F32,
                   j->dw[result]);
}

/* ------------------------------------------------------------------ groups */

/* Sums over a group's tokens. */
static const struct {
    void (*begin)(struct judge *, int result, int group);
    void (*add)(struct judge *, int result, int64_t row);
    int (*compare)(struct judge *, int result, int group);
} sums[RESULTS] = {
    [DW1] = {begin_lines, add_lines, compare_lines},
    [DW2] = {begin_lines, add_lines, compare_lines},
    [DB1] = {begin_bias, add_bias, compare_bias},
    [DB2] = {begin_bias, add_bias, compare_bias},
};

/* A group with all its tokens. */
static int judge_group(struct judge *j, int group)
{
    const struct qn_layer *l = j->l;
    const int last = l->mlp.forward_only ? Y : l->mlp.bias ? DB2 : DW2;
    int code = QUERN_OK;

    for (int sum = DW1; sum <= last; sum++)
        sums[sum].begin(j, sum, group);
    for (int64_t i = 0; i < l->sizes[group] && !code; i++) {
        const int64_t row = l->starts[group] + i;

        qn_layer_reference_token(&j->reference, group, row);
        for (int sum = DW1; sum <= last; sum++)
            sums[sum].add(j, sum, row);
        code = compare_token(j, row);
    }
    for (int sum = DW1; sum <= last && !code; sum++)
        code = sums[sum].compare(j, sum, group);
    return code;
}

/* Its first and last token only. */
static int judge_ends(struct judge *j, int group)
{
    const struct qn_layer *l = j->l;
    const int64_t first = l->starts[group], last = first + l->sizes[group] - 1;
    int code = QUERN_OK;

    for (int64_t row = first; row <= last && !code;
         row += last > first ? last - first : 1) {
        qn_layer_reference_token(&j->reference, group, row);
        code = compare_token(j, row);
    }
    return code;
}

/* The smallest group that is not done yet; -1: none is left. */
static int next_group(const struct qn_layer *l, const char *done)
{
    int best = -1;

    for (int i = 0; i < l->mlp.groups; i++)
        if (!done[i] && (best < 0 || l->sizes[i] < l->sizes[best]))
            best = i;
    return best;
}

/* From the smallest on: wholes first, ends where these become too many. */
static int judge_groups(struct judge *j, int64_t most)
{
    const struct qn_layer *l = j->l;
    char done[QUERN_MAX_GROUPS] = {0};
    int64_t tokens = 0;
    int group, code = QUERN_OK;

    while (!code && (group = next_group(l, done)) >= 0) {
        int whole = tokens + l->sizes[group] <= most;

        done[group] = 1;
        tokens += whole ? l->sizes[group] : 2;
        if (!whole && tokens > 2 * most)
            break;
        code = whole ? judge_group(j, group) : judge_ends(j, group);
    }
    return code;
}

/* ----------------------------------------------------------------- outside */

/* Bytes from one row of y, dx or dprob to the next, and of a row. */
static size_t row_pitch(const struct qn_layer *l, int result)
{
    const size_t element = (size_t)qn_type_bits(l->mlp.type) / 8;

    return result == DPROB ? sizeof(float) : (size_t)l->pitch * element;
}

static size_t row_bytes(const struct qn_layer *l, int result)
{
    const size_t element = (size_t)qn_type_bits(l->mlp.type) / 8;

    return result == DPROB ? sizeof(float) : (size_t)l->mlp.hidden * element;
}

/* Rows past the last group are poison as before, or zeros if the layer says so;
   gaps between rows are poison. */
static int look_outside(const struct qn_layer *l, int *untouched)
{
    int code = QUERN_OK;

    *untouched = 1;
    for (int i = Y; i <= DPROB && !code; i++) {
        const struct qn_memory *m = &l->call.memory[results[i].arg];
        const size_t pitch = row_pitch(l, i), used = row_bytes(l, i);
        const int is_zero = l->mlp.outside && i != DPROB;
        unsigned char *data = malloc(m->bytes + 1);

        code = data ? qn_memory_read(m, 0, data, m->bytes) : qn_error_memory();
        for (size_t k = 0; k < m->bytes && !code; k++)
            if (k / pitch >= (size_t)l->rows || k % pitch >= used)
                *untouched &=
                    data[k] ==
                    (is_zero && k % pitch < used ? 0 : QN_MEMORY_POISON);
        free(data);
    }
    return code;
}

/* ----------------------------------------------------------------- verdict */

static int begin(struct judge *j, const struct qn_layer_numbers *in)
{
    const struct qn_layer_reference *r = &j->reference;
    size_t widest;

    if (qn_layer_reference_begin(&j->reference, in))
        return qn_error_memory();
    widest = (size_t)(r->hidden > r->operands ? r->hidden : r->operands);
    j->line = malloc(widest * sizeof(float));
    for (int i = DW1; i <= DW2; i++)
        j->dw[i] = malloc((size_t)(LINES * columns_of(j, i)) * sizeof(double));
    for (int i = DB1; i <= DB2; i++)
        j->dw[i] = malloc((size_t)bias_length(j, i) * sizeof(double));
    return j->line && j->dw[DW1] && j->dw[DW2] && j->dw[DB1] && j->dw[DB2]
               ? QUERN_OK
               : qn_error_memory();
}

/* A tolerance is a mean over many values: one of a few, or the sums of a few,
   may be off by all that its rounding, and cancellation, allow; a handful
   says little but its direction. */
double qn_layer_widen(int64_t values, int64_t tokens, double width,
                      double tolerance)
{
    enum { FEW = 256, HANDFUL = 16 };
    const double count =
        fmin((double)values, (double)(tokens > 0 ? tokens : 1) * width);
    const double most = count < HANDFUL ? 1 : 0.5;

    return fmax(tolerance, fmin(tolerance * (1 + FEW / fmax(1, count)), most));
}

/* A NaN makes the error NaN, which passes nothing. `losses`: the casts', as
   a factor of the bound. */
static void conclude(const struct judge *j, double losses,
                     struct qn_layer_verdict *v)
{
    const struct qn_mlp *mlp = &j->l->mlp;
    const double few =
        losses * qn_layer_reference_tolerance(
                     j->l->recipe, mlp, (double)j->rows[Y] * (double)mlp->ffn);
    int count = 0, right = v->guards && v->untouched;

    v->tolerance =
        losses * qn_layer_reference_tolerance(j->l->recipe, mlp, HUGE_VAL);
    for (int i = 0; i < RESULTS; i++) {
        double error = j->gap[i] / j->sum[i];

        if (!j->rows[i])
            continue;
        if (j->sum[i] >= 0 && j->sum[i] <= 0) /* all zero, as it should be */
            error = 0;
        v->results[count].name = results[i].name;
        v->results[count].rows = j->rows[i];
        v->results[count].tolerance = qn_layer_widen(
            j->values[i], j->rows[Y],
            fmin((double)j->reference.ffn, (double)j->reference.hidden), few);
        right &= error <= v->results[count].tolerance;
        v->results[count++].error = error;
        if (!(error <= v->error))
            v->error = error;
    }
    v->passed = right;
}

/*
** The loss of the recipe's casts, beyond that of its formats: random rounding
** may lose as much again in each step; values that are cut have no bound, as
** all that follow are so much smaller.
*/
int qn_layer_losses(struct quern_context *ctx, const struct qn_recipe *recipe,
                    const struct qn_mlp *mlp, double *losses)
{
    const int types[] = {recipe->x, recipe->w, recipe->dy};
    double worst = 1, loss;
    int code = QUERN_OK;

    for (int of = QN_X; of <= QN_DY && !code; of++) {
        struct qn_fidelity f = {.recipe = recipe,
                                .q = {.of = of,
                                      .type = mlp->type,
                                      .copies = QUERN_ROWWISE,
                                      .groups = 1,
                                      .m = 256,
                                      .k = mlp->hidden}};

        if (recipe->scaling[of].type == QUERN_TYPE_NONE)
            continue;
        memcpy(f.q.recipe, mlp->recipe, sizeof f.q.recipe);
        code = qn_fidelity_tolerance(ctx, &f, 1, &loss);
        worst = fmax(worst, loss / qn_tolerance_format(types[of]));
        if (!code && worst > CUT)
            code = qn_error_set(
                QUERN_EINVAL,
                "recipe %s cuts values: its casts lose %.2g of %s, and no MLP "
                "without casts can judge the rest; check its casts and "
                "products one by one",
                mlp->recipe, loss, qn_of_name(of));
    }
    /* and among a few values by half as much more */
    *losses = worst > 1 ? 1.5 * worst : 1;
    return code;
}

int qn_layer_judge(struct qn_layer *l, int64_t most, struct qn_layer_verdict *v)
{
    const struct qn_layer_numbers in = {
        .mlp = &l->mlp,
        .x = l->call.host[QUERN_ARG_X],
        .dy = l->call.host[QUERN_ARG_DY],
        .w1 = l->call.host[QUERN_ARG_W1],
        .w2 = l->call.host[QUERN_ARG_W2],
        .probability = l->call.host[QUERN_ARG_PROB],
        .b1 = l->call.host[QUERN_ARG_B1],
        .b2 = l->call.host[QUERN_ARG_B2],
        .limit = l->call.args.limit,
        .slope = l->call.args.slope,
        .shift = l->call.args.shift,
    };
    struct judge j = {.l = l};
    double losses = 1;
    int code = begin(&j, &in);

    memset(v, 0, sizeof *v);
    if (!code)
        code = qn_layer_losses(l->call.ctx, l->recipe, &l->mlp, &losses);
    if (!code)
        code = judge_groups(&j, most);
    if (!code)
        code = look_outside(l, &v->untouched);
    if (!code)
        code = qn_call_guards(&l->call, &v->guards);
    if (!code)
        conclude(&j, losses, v);
    free(j.line);
    for (int i = DW1; i <= DB2; i++)
        free(j.dw[i]);
    qn_layer_reference_free(&j.reference);
    return code;
}

/* Are the rows of y or dx, or all bytes of another result, the same? */
static int same(const struct qn_layer *a, const struct qn_layer *b, int result,
                const char *x, const char *y)
{
    const size_t pitch = row_pitch(a, result), other = row_pitch(b, result);

    if (result > DX || pitch == other)
        return !memcmp(x, y, a->call.memory[results[result].arg].bytes);
    for (size_t i = 0; i < (size_t)a->mlp.m; i++)
        if (memcmp(x + i * pitch, y + i * other, row_bytes(a, result)) != 0)
            return 0;
    return 1;
}

int qn_layer_compare(const struct qn_layer *a, const struct qn_layer *b,
                     const char **where)
{
    int code = QUERN_OK;

    *where = NULL;
    for (int i = 0; i < RESULTS && !code && !*where; i++) {
        const struct qn_memory *p = &a->call.memory[results[i].arg];
        const struct qn_memory *q = &b->call.memory[results[i].arg];
        char *x = malloc(p->bytes + 1), *y = malloc(q->bytes + 1);

        code = x && y ? qn_memory_read(p, 0, x, p->bytes) : qn_error_memory();
        if (!code)
            code = qn_memory_read(q, 0, y, q->bytes);
        if (!code && !same(a, b, i, x, y))
            *where = results[i].name;
        free(x);
        free(y);
    }
    return code;
}

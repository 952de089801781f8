/*
** layer_judge.c: are the results of a grouped MLP right?
*/
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "error.h"
#include "layer.h"
#include "layer_reference.h"
#include "types.h"

enum { Y, DX, DPROB, DW1, DW2, RESULTS };
static const struct {
    const char *name;
    int part;
} results[RESULTS] = {
    {"y", QN_LAYER_Y},     {"dx", QN_LAYER_DX},   {"dprob", QN_LAYER_DPROB},
    {"dw1", QN_LAYER_DW1}, {"dw2", QN_LAYER_DW2},
};

/* Lines of dw that are compared of each group. */
enum { LINES = 64 };

struct judge {
    struct qn_layer *l;
    struct qn_layer_reference reference;
    double xy[RESULTS], sum[RESULTS]; /* of products, of squares */
    int64_t rows[RESULTS];
    double *dw[RESULTS]; /* [LINES, columns] of one group */
    void *line;          /* what was read */
};

/* Numbers of a result, from element `at` on, beside what they should be. */
static int compare(struct judge *j, int result, size_t at, size_t count,
                   int type, const double *want)
{
    const size_t bytes = (size_t)qn_type_bits(type) / 8;
    int code = qn_memory_read(&j->l->memory[results[result].part], at * bytes,
                              j->line, count * bytes);

    for (size_t i = 0; i < count && !code; i++) {
        const double got = (double)qn_element_load(j->line, type, i);

        j->xy[result] += want[i] * got;
        j->sum[result] += want[i] * want[i] + got * got;
    }
    j->rows[result]++;
    return code;
}

/* y, dx and dprob of the token that was computed last. */
static int compare_token(struct judge *j, int64_t row)
{
    const struct quern_mlp *mlp = &j->l->mlp;
    const struct qn_layer_reference *r = &j->reference;
    const size_t hidden = (size_t)mlp->hidden;
    int code = compare(j, Y, (size_t)row * hidden, hidden, mlp->type, r->y);

    if (!code)
        code = compare(j, DX, (size_t)row * hidden, hidden, mlp->type, r->dx);
    if (!code && mlp->probability)
        code = compare(j, DPROB, (size_t)row, 1, QUERN_F32, &r->dprob);
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

/* The i-th line that is looked at; past the last: as many as there are. */
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

/* What was there before, or nothing. */
static void begin_lines(struct judge *j, int result, int group)
{
    const struct qn_layer *l = j->l;
    const int64_t columns = columns_of(j, result);
    const void *before = l->host[results[result].part];

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
static void add_lines(struct judge *j, int result)
{
    const struct qn_layer_reference *r = &j->reference;
    const double *left = result == DW1 ? r->dpre : r->dy;
    const double *right = result == DW1 ? r->x : r->h;
    const int64_t columns = columns_of(j, result);

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

/* ------------------------------------------------------------------ groups */

/* A group with all its tokens. */
static int judge_group(struct judge *j, int group)
{
    const struct qn_layer *l = j->l;
    int code = QUERN_OK;

    begin_lines(j, DW1, group);
    begin_lines(j, DW2, group);
    for (int64_t i = 0; i < l->sizes[group] && !code; i++) {
        qn_layer_reference_token(&j->reference, group, l->starts[group] + i);
        add_lines(j, DW1);
        add_lines(j, DW2);
        code = compare_token(j, l->starts[group] + i);
    }
    if (!code)
        code = compare_lines(j, DW1, group);
    return code ? code : compare_lines(j, DW2, group);
}

/* Its first and last token alone. */
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

/* Rows past the last group are poison as before. */
static int look_outside(const struct qn_layer *l, int *untouched)
{
    int code = QUERN_OK;

    *untouched = 1;
    for (int i = Y; i <= DPROB && !code; i++) {
        const struct qn_memory *m = &l->memory[results[i].part];
        const size_t row = l->mlp.m ? m->bytes / (size_t)l->mlp.m : 0;
        const size_t used = row * (size_t)l->rows, rest = m->bytes - used;
        unsigned char *data = malloc(rest + 1);

        code = data ? qn_memory_read(m, used, data, rest) : qn_error_memory();
        for (size_t k = 0; k < rest && !code; k++)
            *untouched &= data[k] == QN_MEMORY_POISON;
        free(data);
    }
    return code;
}

static int look_at_guards(const struct qn_layer *l, int *guards)
{
    int code = QUERN_OK;

    *guards = 1;
    for (int part = 0; part < QN_LAYER_PARTS && !code; part++) {
        int intact = 1;

        if (l->memory[part].base)
            code = qn_memory_guards(&l->memory[part], &intact);
        *guards &= intact;
    }
    return code;
}

/* ----------------------------------------------------------------- verdict */

static int begin(struct judge *j, const struct qn_layer_numbers *in)
{
    size_t widest;

    if (qn_layer_reference_begin(&j->reference, in))
        return qn_error_memory();
    widest =
        (size_t)(j->reference.hidden > j->reference.ffn ? j->reference.hidden
                                                        : j->reference.ffn);
    j->line = malloc(widest * sizeof(float));
    for (int i = DW1; i <= DW2; i++)
        j->dw[i] = malloc((size_t)(LINES * columns_of(j, i)) * sizeof(double));
    return j->line && j->dw[DW1] && j->dw[DW2] ? QUERN_OK : qn_error_memory();
}

/* A NaN makes the error NaN, which passes nothing. */
static void conclude(const struct judge *j, struct qn_layer_verdict *v)
{
    int count = 0, right = v->guards && v->untouched;

    for (int i = 0; i < RESULTS; i++) {
        double error = 1 - 2 * j->xy[i] / j->sum[i];

        if (!j->rows[i])
            continue;
        if (j->sum[i] >= 0 && j->sum[i] <= 0) /* all zero, as it should be */
            error = 0;
        v->results[count].name = results[i].name;
        v->results[count].rows = j->rows[i];
        v->results[count++].error = error;
        right &= error <= v->tolerance;
        if (!(error <= v->error))
            v->error = error;
    }
    v->passed = right;
}

int qn_layer_judge(struct qn_layer *l, int64_t most, struct qn_layer_verdict *v)
{
    const struct qn_layer_numbers in = {
        .mlp = &l->mlp,
        .x = l->host[QN_LAYER_X],
        .dy = l->host[QN_LAYER_DY],
        .w1 = l->host[QN_LAYER_W1],
        .w2 = l->host[QN_LAYER_W2],
        .probability = l->host[QN_LAYER_PROBABILITY],
        .limit = l->args.limit,
        .slope = l->args.slope,
        .shift = l->args.shift,
    };
    struct judge j = {.l = l};
    int code = begin(&j, &in);

    memset(v, 0, sizeof *v);
    v->tolerance = qn_layer_reference_tolerance(l->recipe, &l->mlp);
    if (!code)
        code = judge_groups(&j, most);
    if (!code)
        code = look_outside(l, &v->untouched);
    if (!code)
        code = look_at_guards(l, &v->guards);
    if (!code)
        conclude(&j, v);
    free(j.line);
    free(j.dw[DW1]);
    free(j.dw[DW2]);
    qn_layer_reference_free(&j.reference);
    return code;
}

int qn_layer_compare(const struct qn_layer *a, const struct qn_layer *b,
                     const char **where)
{
    int code = QUERN_OK;

    *where = NULL;
    for (int i = 0; i < RESULTS && !code && !*where; i++) {
        const size_t bytes = a->memory[results[i].part].bytes;
        char *x = malloc(bytes + 1), *y = malloc(bytes + 1);

        code = x && y ? qn_memory_read(&a->memory[results[i].part], 0, x, bytes)
                      : qn_error_memory();
        if (!code)
            code = qn_memory_read(&b->memory[results[i].part], 0, y, bytes);
        if (!code && memcmp(x, y, bytes))
            *where = results[i].name;
        free(x);
        free(y);
    }
    return code;
}

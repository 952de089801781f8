/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer_judge.c: are the results of a grouped MLP right?
*/
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/types.h"
#include "oracle/fidelity.h"
#include "oracle/tally.h"
#include "oracle/tolerance.h"

/* Lines of dw that are compared of each group. */
enum { LINES = 64 };

/* Rounding by chance loses twice as much as rounding to nearest. */
#define CUT 2.5

struct judge {
    struct qn_layer *l;
    struct qn_layer_reference reference;
    struct qn_tally tally;
    void *line; /* the values read */
};

/* Values of a result, from element `at` on, as qn_tally_add. */
static int compare(struct judge *j, int result, int64_t at, int64_t count,
                   const double *want, double least)
{
    const struct qn_mlp *mlp = &j->l->mlp;
    const size_t bytes = (size_t)qn_type_bits(qn_tally_type(mlp, result)) / 8;
    const int code =
        qn_memory_read(&j->l->call.memory[qn_tally_names[result].arg],
                       (size_t)at * bytes, j->line, (size_t)count * bytes);

    if (!code)
        qn_tally_add(&j->tally, mlp, result, j->line, 0, count, want, least);
    return code;
}

/* y, dx and dprob of the token that was computed last. */
static int compare_token(struct judge *j, int64_t row)
{
    const struct qn_mlp *mlp = &j->l->mlp;
    const struct qn_layer_reference *r = &j->reference;
    const int64_t at = row * j->l->pitch;
    int code = compare(j, QN_TALLY_Y, at, mlp->hidden, r->y, 0);

    if (code || mlp->forward_only)
        return code;
    code = compare(j, QN_TALLY_DX, at, mlp->hidden, r->dx, 0);
    if (!code && mlp->probability)
        code = compare(j, QN_TALLY_DPROB, row, 1, &r->dprob, 2 * r->terms);
    return code;
}

static int compare_lines(struct judge *j, const struct qn_tally_lines *l,
                         int group)
{
    int code = QUERN_OK;

    for (int64_t i = 0; i < l->count && !code; i++)
        code = compare(j, l->result, qn_tally_line(l, group, i), l->columns,
                       l->sums + i * l->columns, 0);
    return code;
}

/* A group with all its tokens. */
static int judge_group(struct judge *j, int group)
{
    const struct qn_layer *l = j->l;
    const int last = l->mlp.forward_only ? QN_TALLY_Y
                     : l->mlp.bias       ? QN_TALLY_DB2
                                         : QN_TALLY_DW2;
    struct qn_tally_lines lines[QN_TALLY_RESULTS] = {{0}};
    int code = QUERN_OK;

    for (int sum = QN_TALLY_DW1; sum <= last && !code; sum++)
        code = qn_tally_begin(&lines[sum], &j->reference, sum, LINES,
                              l->call.host[qn_tally_names[sum].arg], group);
    for (int64_t i = 0; i < l->sizes[group] && !code; i++) {
        const int64_t row = l->starts[group] + i;

        qn_layer_reference_token(&j->reference, group, row);
        for (int sum = QN_TALLY_DW1; sum <= last; sum++)
            qn_tally_token(&lines[sum], &j->reference, row);
        code = compare_token(j, row);
    }
    for (int sum = QN_TALLY_DW1; sum <= last; sum++) {
        if (!code)
            code = compare_lines(j, &lines[sum], group);
        free(lines[sum].sums);
    }
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

/* From the smallest on: wholes first, ends where these become too many. */
static int judge_groups(struct judge *j, int64_t most)
{
    const struct qn_layer *l = j->l;
    char done[QUERN_MAX_GROUPS] = {0};
    int64_t tokens = 0;
    int group, code = QUERN_OK;

    while (!code &&
           (group = qn_tally_next(l->sizes, done, l->mlp.groups)) >= 0) {
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

    return result == QN_TALLY_DPROB ? sizeof(float)
                                    : (size_t)l->pitch * element;
}

static size_t row_bytes(const struct qn_layer *l, int result)
{
    const size_t element = (size_t)qn_type_bits(l->mlp.type) / 8;

    return result == QN_TALLY_DPROB ? sizeof(float)
                                    : (size_t)l->mlp.hidden * element;
}

/* Rows past the last group are poison as before, or zeros if the layer says so;
   gaps between rows are poison. */
static int look_outside(const struct qn_layer *l, int *untouched)
{
    int code = QUERN_OK;

    *untouched = 1;
    for (int i = QN_TALLY_Y; i <= QN_TALLY_DPROB && !code; i++) {
        const struct qn_memory *m = &l->call.memory[qn_tally_names[i].arg];
        const size_t pitch = row_pitch(l, i), used = row_bytes(l, i);
        const int is_zero = l->mlp.outside && i != QN_TALLY_DPROB;
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
    return j->line ? QUERN_OK : qn_error_memory();
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
        qn_tally_conclude(&j.tally, l->recipe, &l->mlp, losses,
                          j.tally.rows[QN_TALLY_Y], v);
    free(j.line);
    qn_layer_reference_free(&j.reference);
    return code;
}

/* Are the rows of y or dx, or all bytes of another result, the same? */
static int same(const struct qn_layer *a, const struct qn_layer *b, int result,
                const char *x, const char *y)
{
    const size_t pitch = row_pitch(a, result), other = row_pitch(b, result);

    if (result > QN_TALLY_DX || pitch == other)
        return !memcmp(x, y, a->call.memory[qn_tally_names[result].arg].bytes);
    for (size_t i = 0; i < (size_t)a->mlp.m; i++)
        if (memcmp(x + i * pitch, y + i * other, row_bytes(a, result)) != 0)
            return 0;
    return 1;
}

int qn_layer_compare(const struct qn_layer *a, const struct qn_layer *b,
                     const char **where)
{
    const int last = a->mlp.forward_only ? QN_TALLY_Y : QN_TALLY_RESULTS - 1;
    int code = QUERN_OK;

    *where = NULL;
    for (int i = 0; i <= last && !code && !*where; i++) {
        const struct qn_memory *p = &a->call.memory[qn_tally_names[i].arg];
        const struct qn_memory *q = &b->call.memory[qn_tally_names[i].arg];
        char *x = malloc(p->bytes + 1), *y = malloc(q->bytes + 1);

        code = x && y ? qn_memory_read(p, 0, x, p->bytes) : qn_error_memory();
        if (!code)
            code = qn_memory_read(q, 0, y, q->bytes);
        if (!code && !same(a, b, i, x, y))
            *where = qn_tally_names[i].name;
        free(x);
        free(y);
    }
    return code;
}

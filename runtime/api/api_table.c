/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_table.c: the operands of a line. Their lengths are found for some row
** counts, and with them the law that each follows.
*/
#include "api/api_use.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/problem.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------- operands, for a line's rows */

static const char *recipe_of(const struct qn_line *line)
{
    return qn_api_has_mlp(line->kind)    ? line->of.mlp.recipe
           : line->kind == QN_LINE_CAST  ? line->of.cast.recipe
           : line->kind == QN_LINE_ROUTE ? ""
                                         : line->of.product.recipe;
}

static int groups_of(const struct qn_line *line)
{
    return qn_api_has_mlp(line->kind)   ? line->of.mlp.groups
           : line->kind == QN_LINE_CAST ? line->of.cast.groups
                                        : line->of.product.groups;
}

/* Bytes that have no shape. */
static void set_bytes(struct quern_operand *o, size_t bytes, size_t zero)
{
    o->bytes.base = (int64_t)bytes;
    o->alignment = QN_ALIGNMENT;
    o->zero_bytes = zero;
}

static void set_array(const struct qn_needs_of *n, struct quern_operand *o)
{
    const union qn_needs *need = n->needs;
    const int kind = n->line->kind;

    if (o->arg == QUERN_ARG_WORKSPACE) {
        const size_t bytes = qn_api_has_mlp(kind)   ? need->mlp.workspace_bytes
                             : kind == QN_LINE_CAST ? need->cast.workspace_bytes
                             : kind == QN_LINE_ROUTE
                                 ? need->route.workspace_bytes
                                 : need->product.workspace_bytes;

        /* the following is per step */
        set_bytes(o, bytes, QN_WORKSPACE_BYTES);
    } else if (o->arg == QUERN_ARG_SAVED) {
        set_bytes(o, need->mlp.saved_bytes, 0);
    } else if (o->arg == QUERN_ARG_PENDING) {
        set_bytes(o, need->mlp.pending_bytes, 0);
    } else {
        o->bytes.base = o->shape[0].base *
                        (o->ndim > 1 ? o->shape[1].base : 1) *
                        qn_type_bits(o->type) / 8;
        o->alignment = (size_t)qn_type_bits(o->type) / 8;
        if (o->arg == QUERN_ARG_BIAS || o->arg == QUERN_ARG_B1 ||
            o->arg == QUERN_ARG_B2)
            o->alignment *= 2;
    }
}

static void set_scales(const struct qn_api_scales *scales,
                       const struct qn_tensor *t, struct quern_operand *o)
{
    o->type = scales->type;
    o->ndim = scales->shape.ndim;
    for (int i = 0; i < o->ndim; i++)
        o->shape[i].base = scales->shape.shape[i];
    o->pitch.base = scales->shape.pitch;
    o->bytes.base = (int64_t)t->sf_bytes;
    o->tiled = scales->shape.tiled;
}

/* 0: the line has no such tensor. */
static int set_tensor(const struct qn_needs_of *n, const struct qn_slot *slot,
                      const struct qn_tensor *t, struct quern_operand *o)
{
    struct qn_api_scales scales = {.type = 0};
    const int scaled = qn_api_scaled(n, slot->arg - (int)slot->form, &scales);

    if (!t->ndim || (slot->form == QN_SLOT_SF && !scaled) ||
        (slot->form == QN_SLOT_GLOBAL && !scales.global))
        return 0;
    if (slot->form == QN_SLOT_TENSOR) {
        o->type = t->type;
        o->ndim = t->ndim;
        for (int i = 0; i < t->ndim; i++)
            o->shape[i].base = t->shape[i];
        o->pitch.base = t->stride ? t->stride : t->shape[t->ndim - 1];
        o->bytes.base = (int64_t)t->bytes;
        o->alignment = t->alignment;
        o->strided = !scaled &&
                     (!qn_api_has_mlp(n->line->kind) || t->ndim == 2) &&
                     o->arg != QUERN_ARG_ROWWISE &&
                     (o->arg < QUERN_ARG_LORA_A || o->arg > QUERN_ARG_LORA_T);
        o->tiled = scales.tiled;
        return 1;
    }
    o->alignment = 16;
    if (slot->form == QN_SLOT_SF) {
        set_scales(&scales, t, o);
        return 1;
    }
    o->type = QUERN_F32;
    o->bytes.base = (int64_t)t->global_bytes;
    o->ndim = 1;
    o->shape[0].base = o->bytes.base / 4;
    return 1;
}

static int set_operand(const struct qn_needs_of *n, const struct qn_slot *slot,
                       struct quern_operand *o)
{
    const int at = slot->at[n->line->kind];
    struct qn_slot whole = *slot;

    memset(o, 0, sizeof *o);
    if (at < 0)
        return 0;
    whole.arg -= slot->form == QN_SLOT_ARRAY ? 0 : (int)slot->form;
    o->arg = whole.arg;
    qn_api_use(n, &whole, o);
    o->arg = slot->arg;
    o->name = qn_api_name(slot->arg);
    if (!(o->read | o->written))
        return 0;
    if (slot->form != QN_SLOT_ARRAY) {
        if (slot->form != QN_SLOT_TENSOR)
            o->pointers = 0;
        return set_tensor(n, slot, (const void *)((const char *)n->needs + at),
                          o);
    }
    set_array(n, o);
    return 1;
}

/* Sizes of groups: at least one of them is given. */
static int add_sizes(const struct qn_line *line, struct quern_operand *table)
{
    const int groups = groups_of(line);
    const int phases = qn_api_phases(line) & ~(1 << QUERN_PHASE_WEIGHTS);

    for (int i = 0; i < 3; i++) {
        struct quern_operand *o = &table[i];

        memset(o, 0, sizeof *o);
        o->arg = QUERN_ARG_LENGTHS + i;
        o->name = qn_api_name(o->arg);
        o->read = o->optional = phases;
        o->type = QUERN_I32;
        o->ndim = 1;
        o->shape[0].base = groups + (o->arg == QUERN_ARG_STARTS);
        o->bytes.base = 4 * o->shape[0].base;
        o->alignment = 4;
    }
    return 3;
}

/* For the rows that the line has now. */
static int list(struct quern_context *ctx, const struct qn_line *line,
                int ragged, struct quern_operand *table, int *count)
{
    union qn_needs needs;
    const struct qn_needs_of n = {line, &needs,
                                  qn_context_recipe(ctx, recipe_of(line))};
    int code = qn_api_needs(ctx, line, &needs);

    if (code)
        return code;
    *count = ragged && line->kind < QN_LINE_ROUTE ? add_sizes(line, table) : 0;
    for (int i = 0; i < qn_api_slot_count; i++)
        *count += set_operand(&n, &qn_api_slots[i], &table[*count]);
    return QUERN_OK;
}

/* -------------------------------------------------------------------- laws */

enum { NUMBERS = QUERN_MAX_DIMS + 2, MOST = 128, PERIOD = 256, TILE = 128 };

static struct quern_extent *number(struct quern_operand *o, int i)
{
    return i < QUERN_MAX_DIMS    ? &o->shape[i]
           : i == QUERN_MAX_DIMS ? &o->pitch
                                 : &o->bytes;
}

/* All values of a line's operands, for the row counts that were asked for. */
struct samples {
    struct quern_context *ctx;
    struct qn_line line;
    const struct quern_operand *table;
    int operands, count, code;
    int64_t rows[MOST], last; /* of them the most */
    int64_t (*values)[QN_SLOTS][NUMBERS];
};

/* An operand without bytes for so many rows is not listed then: zeros. */
static int sample(struct samples *s, int64_t rows)
{
    struct quern_operand found[QN_SLOTS];
    const int to = s->count < MOST ? s->count : MOST - 1;
    int64_t(*values)[NUMBERS] = s->values[to];
    int n, at = 0, code;

    *qn_api_rows(&s->line) = rows;
    code = list(s->ctx, &s->line, 1, found, &n);
    if (code)
        return code;
    memset(values, 0, sizeof *s->values);
    for (int i = 0; i < s->operands && at < n; i++) {
        if (found[at].arg != s->table[i].arg)
            continue;
        for (int j = 0; j < NUMBERS; j++)
            values[i][j] = number(&found[at], j)->base;
        at++;
    }
    s->rows[to] = rows;
    s->count = to + 1;
    return QUERN_OK;
}

/* After an error, which s->code keeps: 0. */
static int64_t value(struct samples *s, int i, int j, int64_t rows)
{
    for (int r = 0; r < s->count; r++)
        if (s->rows[r] == rows)
            return s->values[r][i][j];
    if (!s->code)
        s->code = sample(s, rows);
    return s->code ? 0 : s->values[s->count - 1][i][j];
}

/* The first row count after `from` with another value, at most PERIOD later:
   no value falls as rows are added. 0: there is none. Steps are mostly powers
   of two, which two samples confirm; all others are found by halves. */
static int64_t next_step(struct samples *s, int i, int j, int64_t from)
{
    const int64_t before = value(s, i, j, from);
    int64_t same = from, step = 1;

    while (value(s, i, j, from + step) == before) {
        if (step == PERIOD)
            return 0;
        same = from + step;
        step *= 2;
    }
    step += from;
    for (int64_t at = step - 1; step - same > 1; at = (step + same) / 2)
        if (value(s, i, j, at) == before)
            same = at;
        else
            step = at;
    return step;
}

/* The second step. A period that divides PERIOD follows from the height of the
   first one and the mean slope, and two samples confirm it. */
static int64_t second_step(struct samples *s, int i, int j, int64_t one)
{
    const int64_t first = value(s, i, j, 0), low = value(s, i, j, one);
    const int64_t rise = value(s, i, j, PERIOD) - first;
    const int64_t steps = low > first ? rise / (low - first) : 0;
    const int64_t guess = steps > 0 ? one + PERIOD / steps : one;

    if (value(s, i, j, guess - 1) == low && value(s, i, j, guess) != low)
        return guess;
    return next_step(s, i, j, one);
}

/* Steps of equal height at equal distances; the first two say which. 0: the
   samples do not follow the law. */
static int find_law(struct samples *s, int i, int j, struct quern_extent *e)
{
    const int64_t first = value(s, i, j, 0);
    int64_t one, two;

    *e = (struct quern_extent){first, 0, 0, 1};
    if (value(s, i, j, s->last) != first) {
        one = next_step(s, i, j, 0);
        two = one ? second_step(s, i, j, one) : 0;
        if (!two || two < 2 * one)
            return 0;
        e->unit = two - one;
        e->add = e->unit - one;
        e->step = value(s, i, j, one) - first;
    }
    for (int r = 0; r < s->count; r++)
        if (quern_extent(e, s->rows[r]) != s->values[r][i][j])
            return 0;
    return 1;
}

/* An upper bound of bytes that are sums of padded parts, some of which grow
   with each row and some with each tile: the bytes of whole tiles. Their
   padding repeats after few tiles. */
static void bound(struct samples *s, int i, int j, struct quern_extent *e)
{
    const int64_t first = value(s, i, j, 0), most = s->last / TILE,
                  more = value(s, i, j, s->last) - first;

    *e = (struct quern_extent){first, (more + most - 1) / most, TILE - 1, TILE};
    for (int64_t rows = TILE; rows <= 8 * TILE; rows += TILE)
        if (quern_extent(e, rows) < value(s, i, j, rows))
            e->base += value(s, i, j, rows) - quern_extent(e, rows);
}

static void find_laws(struct samples *s, struct quern_operand *table)
{
    for (int i = 0; i < s->operands; i++)
        for (int j = 0; j < NUMBERS; j++) {
            struct quern_extent law, *e = number(&table[i], j);

            if (find_law(s, i, j, &law))
                *e = law;
            else if (table[i].arg == QUERN_ARG_SAVED ||
                     table[i].arg == QUERN_ARG_PENDING)
                bound(s, i, j, e);
        }
}

int qn_api_table(struct quern_context *ctx, const struct qn_line *line,
                 struct quern_operand *table, int *count)
{
    const int64_t near[] = {0, 1, 2, 3, 2 * TILE}, far[] = {16385, 1 << 20};
    struct samples s = {.ctx = ctx, .line = *line, .table = table};
    const int ragged = qn_api_rows(&s.line) != NULL;
    int code = list(ctx, line, ragged, table, count);

    if (code || !ragged)
        return code;
    if (qn_api_has_mlp(line->kind)) /* a list of lengths has its own rows */
        s.line.of.mlp.split[0] = 0;
    else if (line->kind == QN_LINE_CAST)
        s.line.of.cast.split[0] = 0;
    s.operands = *count;
    s.values = malloc(MOST * sizeof *s.values);
    if (!s.values)
        return qn_error_memory();
    for (int i = 0; i < 5 && !s.code; i++)
        s.code = sample(&s, near[i]);
    for (int i = 0; i < 2 && !s.code; i++)
        if (sample(&s, far[i]))
            break; /* more bytes than can be counted */
    if (!s.code) {
        s.last = s.rows[s.count - 1];
        find_laws(&s, table);
    }
    free(s.values);
    return s.code ? s.code : qn_error_done(QUERN_OK);
}

int quern_describe(struct quern_context *ctx, const char *text,
                   struct quern_operand **table, int *count)
{
    struct quern_operand found[QN_SLOTS];
    struct qn_line line;
    int code, n;

    if (!table || !count)
        return qn_error_set(QUERN_EINVAL, "%s is NULL",
                            table ? "count" : "table");
    *table = NULL;
    *count = 0;
    code = qn_api_line(ctx, text, &line);
    if (!code)
        code = qn_api_table(ctx, &line, found, &n);
    if (code)
        return code;
    *table = malloc((size_t)n * sizeof **table);
    if (!*table)
        return qn_error_memory();
    memcpy(*table, found, (size_t)n * sizeof **table);
    *count = n;
    return QUERN_OK;
}

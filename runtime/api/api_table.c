/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_table.c: the operands of a line. Their lengths are found for many
** row counts, and with them the law that each follows.
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
    return line->kind == QN_LINE_MLP     ? line->of.mlp.recipe
           : line->kind == QN_LINE_CAST  ? line->of.cast.recipe
           : line->kind == QN_LINE_ROUTE ? ""
                                         : line->of.product.recipe;
}

static int groups_of(const struct qn_line *line)
{
    return line->kind == QN_LINE_MLP    ? line->of.mlp.groups
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
        const size_t bytes = kind == QN_LINE_MLP    ? need->mlp.workspace_bytes
                             : kind == QN_LINE_CAST ? need->cast.workspace_bytes
                             : kind == QN_LINE_ROUTE
                                 ? need->route.workspace_bytes
                                 : need->product.workspace_bytes;

        /* the following is per step */
        set_bytes(o, bytes, QN_WORKSPACE_BYTES);
    } else if (o->arg == QUERN_ARG_SAVED) {
        set_bytes(o, need->mlp.saved_bytes, 0);
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
                     (n->line->kind != QN_LINE_MLP || t->ndim == 2) &&
                     o->arg != QUERN_ARG_ROWWISE;
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
    *count = ragged && line->kind != QN_LINE_ROUTE ? add_sizes(line, table) : 0;
    for (int i = 0; i < qn_api_slot_count; i++)
        *count += set_operand(&n, &qn_api_slots[i], &table[*count]);
    return QUERN_OK;
}

/* -------------------------------------------------------------------- laws */

enum { NUMBERS = QUERN_MAX_DIMS + 2, DENSE = 264, FAR = 4 };

static struct quern_extent *number(struct quern_operand *o, int i)
{
    return i < QUERN_MAX_DIMS    ? &o->shape[i]
           : i == QUERN_MAX_DIMS ? &o->pitch
                                 : &o->bytes;
}

/* All values, for each row count in turn. */
struct samples {
    int64_t rows[DENSE + FAR];
    int64_t (*values)[QN_SLOTS][NUMBERS];
    int count;
};

/* An operand without bytes for so many rows is not listed then: zeros. */
static int sample(struct quern_context *ctx, const struct qn_line *line,
                  const struct quern_operand *table, int count,
                  struct samples *s, int64_t rows)
{
    struct quern_operand found[QN_SLOTS];
    struct qn_line other = *line;
    int64_t(*values)[NUMBERS] = s->values[s->count];
    int n, at = 0, code;

    *qn_api_rows(&other) = rows;
    code = list(ctx, &other, 1, found, &n);
    if (code)
        return code;
    memset(values, 0, sizeof *s->values);
    for (int i = 0; i < count && at < n; i++) {
        if (found[at].arg != table[i].arg)
            continue;
        for (int j = 0; j < NUMBERS; j++)
            values[i][j] = number(&found[at], j)->base;
        at++;
    }
    s->rows[s->count++] = rows;
    return QUERN_OK;
}

/* Steps of equal height at equal distances; the first two say which. */
static void find_law(const struct samples *s, int i, int j,
                     struct quern_extent *e)
{
    const int64_t first = s->values[0][i][j];
    int at[2] = {0, 0}, found = 0;

    *e = (struct quern_extent){first, 0, 0, 1};
    for (int r = 1; r < DENSE && found < 2; r++)
        if (s->values[r][i][j] != s->values[r - 1][i][j])
            at[found++] = r;
    if (!found)
        return;
    e->unit = found > 1 ? at[1] - at[0] : DENSE;
    e->add = e->unit - at[0];
    e->step = s->values[at[0]][i][j] - first;
}

static int holds(const struct samples *s, int i, int j,
                 const struct quern_extent *e)
{
    if (e->add < 0)
        return 0;
    for (int r = 0; r < s->count; r++)
        if (quern_extent(e, s->rows[r]) != s->values[r][i][j])
            return 0;
    return 1;
}

/* An upper bound of bytes that are sums of padded parts, some of which grow
   with each row and some with each tile of 128: the tightest law that steps by
   `unit`. Returns by how much it is too large at most. */
static int64_t bound_by(const struct samples *s, int i, int j, int64_t unit,
                        struct quern_extent *e)
{
    const int last = s->count - 1;
    const int64_t steps = (s->rows[last] + unit - 1) / unit,
                  more = s->values[last][i][j] - s->values[0][i][j];
    int64_t most = 0;

    *e = (struct quern_extent){0, (more + steps - 1) / steps, unit - 1, unit};
    for (int r = 0; r < s->count; r++)
        if (quern_extent(e, s->rows[r]) < s->values[r][i][j])
            e->base += s->values[r][i][j] - quern_extent(e, s->rows[r]);
    for (int r = 1; r < s->count; r++)
        if (quern_extent(e, s->rows[r]) - s->values[r][i][j] > most)
            most = quern_extent(e, s->rows[r]) - s->values[r][i][j];
    return most;
}

static void bound(const struct samples *s, int i, int j, struct quern_extent *e)
{
    struct quern_extent tiles;
    const int64_t by_row = bound_by(s, i, j, 1, e);

    if (bound_by(s, i, j, 128, &tiles) < by_row)
        *e = tiles;
}

static void find_laws(const struct samples *s, int count,
                      struct quern_operand *table)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < NUMBERS; j++) {
            struct quern_extent law, *e = number(&table[i], j);

            find_law(s, i, j, &law);
            if (holds(s, i, j, &law))
                *e = law;
            else if (table[i].arg == QUERN_ARG_SAVED)
                bound(s, i, j, e);
        }
}

int qn_api_table(struct quern_context *ctx, const struct qn_line *given,
                 struct quern_operand *table, int *count)
{
    const int64_t far[FAR] = {4096, 16385, 65536, 1 << 20};
    struct qn_line line = *given;
    int64_t *rows = qn_api_rows(&line);
    struct samples s = {.count = 0};
    int code = list(ctx, given, rows != NULL, table, count);

    if (code || !rows)
        return code;
    s.values = malloc((DENSE + FAR) * sizeof *s.values);
    if (!s.values)
        return qn_error_memory();
    for (int r = 0; r < DENSE && !code; r++)
        code = sample(ctx, &line, table, *count, &s, r);
    for (int i = 0; i < FAR && !code; i++)
        if (sample(ctx, &line, table, *count, &s, far[i]))
            break; /* more bytes than can be counted */
    if (!code)
        find_laws(&s, *count, table);
    free(s.values);
    return code ? code : qn_error_done(QUERN_OK);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* copied.c: quantized operands of a case, and their values. */
#include "support/case.h"
#include "oracle/decode.h"
#include "oracle/memory.h"
#include "base/context.h"
#include "base/random.h"
#include "device/check.h"
#include "problem/dequantize_rules.h"
#include "problem/geometry.h"
#include "problem/scale.h"
#include "quantize/quantize_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct quern_context *qt_context;

/* Quantizes one operand. */
struct maker {
    const struct qt_case *c;
    struct qt_data *data;
    int role;
    struct qn_problem problem;
    struct qn_quantization q;
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
};

/* Some bytes of poison at a multiple of 64. */
static void *poison(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);

    if (memory)
        memset(memory, QT_POISON, bytes);
    return memory;
}

/* Extreme rows are zero, or 2^40 times as large or small as others. */
static float row_factor(int fill, uint64_t *state)
{
    static const float factors[] = {1, 0x1p40f, 0x1p-40f, 0, 1};

    return fill == QT_EXTREME ? factors[qt_random_below(state, 5)] : 1;
}

/* Blocks in odd rows of weights that FP8 holds, too, have all distances, and
   those in even rows none. Integers times 1/4 are still exact in sums over
   thousands of them. Without scales of blocks one magnitude is kept: small
   values would only sink below the 13 bits that FP8 tensor cores sum in. */
static float block_factor(const struct maker *m, int64_t begin, int64_t row,
                          int64_t i)
{
    const struct qt_case *c = m->c;
    const int spread =
        m->q.of == QN_W && c->recipe->scaling[QN_W].as && c->fill != QT_INTEGER;
    float factor;

    if (spread)
        return row % 2 ? ldexpf(1, -(int)((row * 5 + i / 32 * 7) % 18)) : 1;
    if (c->alike || !qn_scale_blocks(c->recipe))
        return 1;
    factor = qn_random_factor(c->seed + (uint64_t)(m->role + 2 * begin),
                              (uint64_t)(row - begin), (uint64_t)i);
    return c->fill == QT_INTEGER ? fmaxf(factor / 2, 0.25f) : factor;
}

/* Rows `begin` to `end` of values, a group's. */
static void draw_rows(const struct maker *m, int64_t begin, int64_t end,
                      uint64_t *state)
{
    uint16_t *numbers = m->data->numbers[m->role];

    for (int64_t row = begin; row < end; row++) {
        float factor = row_factor(m->c->fill, state);

        for (int64_t i = 0; i < m->q.k; i++)
            numbers[row * m->q.k + i] =
                qt_bf16(factor * block_factor(m, begin, row, i) *
                        qt_draw(state, m->c->fill));
    }
}

/* Every row that any group may get, now or in a replay: rows outside of all
   groups stay NaN only as long as these have their own bytes. */
static int draw_numbers(const struct maker *m, uint64_t *state)
{
    const struct qt_case *c = m->c;

    m->data->numbers[m->role] = poison(m->need.args.in.bytes);
    if (!m->data->numbers[m->role])
        return -1;
    for (int g = 0; g < c->groups; g++) {
        const int64_t begin = m->q.of == QN_W ? g * m->q.m : c->start[g];
        const int64_t rows = m->q.of == QN_W ? m->q.m : c->length[g];

        draw_rows(m, begin, begin + rows, state);
    }
    return 0;
}

/* Poison in place of the copy and its scales. */
static int make_outputs(struct maker *m, const struct qn_tensor *copy)
{
    struct qt_data *d = m->data;
    int role = m->role;

    free(d->operand[role]);
    free(d->sf[role]);
    free(d->global[role]);
    d->bytes[role] = copy->bytes;
    d->sf_bytes[role] = copy->sf_bytes;
    d->global_bytes[role] = copy->global_bytes;
    d->operand[role] = poison(copy->bytes);
    d->sf[role] = poison(copy->sf_bytes);
    d->global[role] = copy->global_bytes ? poison(copy->global_bytes) : NULL;
    return d->operand[role] && d->sf[role] &&
                   (!copy->global_bytes || d->global[role])
               ? 0
               : -1;
}

/* By the host backend, as the program under test would. */
static int quantize(struct maker *m, struct qn_tensor *copy)
{
    static const uint64_t random[] = {7, 0};
    struct qn_quantize_args args = m->need.args;
    struct qt_data *d = m->data;
    float scale[] = {1, 1};
    float *history = calloc((size_t)m->need.history + 1, sizeof *history);
    void *workspace = calloc(1, m->need.workspace_bytes + 64);
    int code = history && workspace ? QUERN_OK : QUERN_ENOMEM;
    size_t skip = 64 - (uintptr_t)workspace % 64;

    if (workspace)
        qn_memory_begin((char *)workspace + skip, m->need.workspace_bytes);
    args.in.data = d->numbers[m->role];
    *(m->q.copies == QUERN_ROWWISE ? &args.row : &args.column) = *copy;
    args.workspace = (char *)workspace + skip;
    args.random = m->need.random ? random : NULL;
    args.scale = m->need.history ? scale : NULL;
    args.history = m->need.history ? history : NULL;
    args.sizes_type = m->c->sizes_type;
    if (m->q.of != QN_W) {
        args.first_dims = d->first;
        args.offsets = d->offsets;
    }
    if (!code)
        code = qn_quantize_run(m->plan, &args, NULL);
    if (!code)
        code = qn_check_record(m->plan->driver, m->plan->context,
                               args.workspace, &args.in, "quern_check", NULL);
    free(history);
    free(workspace);
    return code;
}

/* Scales that an empty group has for itself, where the groups' rows are
   summed. */
static void forget_empty(struct maker *m)
{
    const struct qt_case *c = m->c;
    float *sf = m->data->sf[m->role], *global = m->data->global[m->role];
    struct qn_geometry g;

    if (c->ragged != QUERN_AXIS_K || !c->unwritten)
        return;
    qn_geometry_of(&m->problem, c->recipe, m->role, &g);
    for (int i = 0; i < c->groups; i++) {
        if (c->length[i])
            continue;
        if (global)
            global[i] = NAN;
        for (int64_t j = 0; j < g.sf.group_stride; j++)
            if (g.sf.scaling->span != QN_SPAN_BLOCK &&
                g.sf.scaling->type == QUERN_F32)
                sf[i * g.sf.group_stride + j] = NAN;
    }
}

/* All groups' rows as doubles, back to back. */
static int decode(struct maker *m, const struct qn_tensor *copy)
{
    const struct qt_case *c = m->c;
    struct qt_data *d = m->data;
    struct qn_geometry g;
    struct qn_decode decode;
    int64_t total = 0;

    qn_geometry_of(&m->problem, c->recipe, m->role, &g);
    qn_decode_begin(&decode, &g, copy, c->groups, c->start, c->length);
    decode.multiplied = qn_dequantize_type(&m->problem, c->recipe);
    for (int i = 0; i < c->groups; i++) {
        int64_t rows = m->role == QT_A ? qt_extent(c, QUERN_AXIS_M, i)
                                       : qt_extent(c, QUERN_AXIS_N, i);

        d->at[m->role][i] = total;
        d->depth[m->role][i] = qn_decode_length(&decode, i);
        total += rows * d->depth[m->role][i];
    }
    free(d->values[m->role]);
    d->values[m->role] = malloc((size_t)total * sizeof(double) + 1);
    if (!d->values[m->role])
        return -1;
    for (int i = 0; i < c->groups; i++) {
        int64_t rows = m->role == QT_A ? qt_extent(c, QUERN_AXIS_M, i)
                                       : qt_extent(c, QUERN_AXIS_N, i);

        for (int64_t row = 0; row < rows; row++)
            qn_decode_row(&decode, i, row,
                          d->values[m->role] + d->at[m->role][i] +
                              row * d->depth[m->role][i]);
    }
    return 0;
}

/* The problem, its quantizations, and a plan. */
static int begin(struct maker *m)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    char text[256];

    qt_case_text(m->c, text, sizeof text);
    if (qn_problem_parse(qt_context, text, &m->problem) ||
        !qn_scale_source(&m->problem, m->c->recipe, m->role, &m->q) ||
        qn_quantize_needs(qt_context, &m->q, &m->need) ||
        qn_quantize_plan(qt_context, &m->q, &host, &m->plan))
        return -1;
    return 0;
}

int qt_copies_make(const struct qt_case *c, struct qt_data *data, int role,
                   uint64_t *state)
{
    struct maker m = {.c = c, .data = data, .role = role};
    struct qn_tensor copy;
    int failed = begin(&m);

    if (!failed && state)
        failed = draw_numbers(&m, state);
    copy = m.q.copies == QUERN_ROWWISE ? m.need.args.row : m.need.args.column;
    if (!failed)
        failed = make_outputs(&m, &copy);
    if (!failed) {
        copy.data = data->operand[role];
        copy.sf = data->sf[role];
        copy.global = data->global[role];
        failed = quantize(&m, &copy) || decode(&m, &copy);
        forget_empty(&m);
    }
    qn_quantize_plan_free(m.plan);
    return failed ? -1 : 0;
}

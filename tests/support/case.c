/* SPDX-License-Identifier: Apache-2.0 */
/*
** case.c: layouts of groups and operands, arrays of sizes, arguments of a run.
*/
#include "support/case.h"
#include "base/types.h"
#include "problem/scale.h"

#include <stdio.h>
#include <string.h>

/*
** 63..65 and 127..129 are around the heights of the tiles; a group of 0 rows
** has no tile at all, one of 1 row a tile that is nearly empty.
*/
const struct qt_pattern qt_patterns[] = {
    {"torture", 9, 9, {0, 1, 7, 63, 64, 65, 127, 128, 129}, 0},
    {"torture down", 9, 9, {129, 128, 127, 65, 64, 63, 7, 1, 0}, 0},
    {"one group", 1, 1, {200}, 0},
    {"one group of one row", 1, 1, {1}, 0},
    {"three groups", 3, 3, {129, 0, 65}, 0},
    {"one has all", 8, 8, {0, 0, 0, 517, 0, 0, 0, 0}, 0},
    {"the last has all", 4, 4, {0, 0, 0, 300}, 0},
    {"all empty", 5, 1, {0}, 0},
    {"whole tiles", 4, 4, {128, 256, 128, 384}, 0},
    {"ones", 40, 1, {1}, 0},
    {"65 groups", 65, 0, {0}, 40},
    {"256 groups", 256, 0, {0}, 7},
    {"1024 groups", 1024, 9, {0, 1, 0, 0, 2, 0, 0, 0, 1}, 0},
};
const int qt_npatterns = sizeof qt_patterns / sizeof qt_patterns[0];

/* Each form of alpha, beta and C. */
const struct qt_epilogue qt_epilogues[] = {
    {"store", 0, QUERN_BETA_ZERO, 0, 0},
    {"add", 0, QUERN_BETA_ONE, 0, 0},
    {"alpha", 1, QUERN_BETA_ZERO, 0, 0},
    {"beta and C", 0, QUERN_BETA_ANY, 0, 1},
    {"alphas, betas and C", 1, QUERN_BETA_ANY, 1, 1},
    {"alphas, added", 1, QUERN_BETA_ONE, 1, 0},
    {"alpha, beta, C is D", 1, QUERN_BETA_ANY, 0, 0},
    {"betas, C is D", 0, QUERN_BETA_ANY, 1, 0},
    {"alphas", 1, QUERN_BETA_ZERO, 1, 0},
};
const int qt_nepilogues = sizeof qt_epilogues / sizeof qt_epilogues[0];

uint64_t qt_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t qt_random_below(uint64_t *state, int64_t bound)
{
    return (int64_t)(qt_random(state) % (uint64_t)bound);
}

const struct qt_epilogue *qt_case_epilogue(const struct qt_case *c)
{
    return c->epilogue ? c->epilogue : &qt_epilogues[0];
}

/* ------------------------------------------------------------------- groups */

int64_t *qt_axis(struct qt_case *c, int axis)
{
    switch (axis) {
    case QUERN_AXIS_M:
        return &c->m;
    case QUERN_AXIS_N:
        return &c->n;
    case QUERN_AXIS_K:
        return &c->k;
    default:
        return NULL;
    }
}

int64_t qt_length(const struct qt_case *c, int axis)
{
    return axis == QUERN_AXIS_M ? c->m : axis == QUERN_AXIS_N ? c->n : c->k;
}

/* One group. */
int64_t qt_extent(const struct qt_case *c, int axis, int group)
{
    return axis == c->ragged ? c->length[group] : qt_length(c, axis);
}

void qt_case_op(struct qt_case *c, int op)
{
    c->op = op;
    c->a_major = op == QUERN_WGRAD ? QUERN_MAJOR_MN : QUERN_MAJOR_K;
    c->b_major = op == QUERN_FPROP ? QUERN_MAJOR_K : QUERN_MAJOR_MN;
    c->ragged = op == QUERN_WGRAD ? QUERN_AXIS_K : QUERN_AXIS_M;
    if (c->recipe)
        c->a_major = c->b_major = QUERN_MAJOR_K;
}

int qt_scaled(const struct qt_case *c, int role)
{
    const struct qn_problem p = {.op = c->op};
    struct qn_quantization q;

    return role <= QT_B && c->recipe &&
           qn_scale_source(&p, c->recipe, role, &q);
}

/* A list is repeated; without one, lengths are drawn. */
static int64_t pattern_length(const struct qt_pattern *p, int g,
                              uint64_t *state)
{
    if (!p->count)
        return qt_random_below(state, p->random + 1);
    return p->length[g % p->count];
}

void qt_case_layout(struct qt_case *c, const struct qt_pattern *p)
{
    uint64_t state = c->seed ^ 0x5157;
    int64_t row = c->form == QT_FIRST ? 0 : 5;

    c->groups = p->groups;
    if (c->ragged == QUERN_AXIS_NONE)
        return;
    for (int g = 0; g < p->groups; g++) {
        if (c->form == QT_BOTH)
            row += qt_random_below(&state, 10);
        c->start[g] = row;
        c->length[g] = pattern_length(p, g, &state);
        row += c->length[g];
    }
    c->start[p->groups] = row;
    *qt_axis(c, c->ragged) = row + 3; /* rows that belong to no group */
}

/* The letters of the operands that come by address, "" for none. */
static void pointer_letters(const struct qt_case *c, char letters[8])
{
    const struct qt_epilogue *e = qt_case_epilogue(c);

    for (int role = 0; role < QT_ROLES; role++) {
        int source = role == QT_C && !e->apart ? QT_D : role;
        struct qt_place p;

        qt_place_of(c, source, &p);
        if (p.grouped && c->pointers[source] && !qt_scaled(c, role) &&
            (role != QT_C || e->beta == QUERN_BETA_ANY))
            *letters++ = "abcd"[role];
    }
    *letters = 0;
}

void qt_case_text(const struct qt_case *c, char *text, size_t size)
{
    static const char *const ops[] = {"fprop", "dgrad", "wgrad"};
    static const char *const layouts[2][2] = {{"tn", "nn"}, {"tt", "nt"}};
    static const char *const axes[] = {"none", "m", "n", "k"};
    static const char *const betas[] = {"0", "1", "any"};
    const struct qt_epilogue *e = qt_case_epilogue(c);
    char letters[8];
    struct qt_place d;

    qt_place_of(c, QT_D, &d);
    pointer_letters(c, letters);
    snprintf(text, size,
             "%s %s g=%d m=%lld n=%lld k=%lld d=%s layout=%s ragged=%s "
             "alpha=%s beta=%s align=%d%s%s%s%s%s",
             ops[c->op],
             c->recipe              ? c->recipe->name
             : c->type == QUERN_F16 ? "fp16"
                                    : "bf16",
             c->groups, (long long)c->m, (long long)c->n, (long long)c->k,
             c->d_type == QUERN_F32   ? "f32"
             : c->d_type == QUERN_F16 ? "f16"
                                      : "bf16",
             layouts[c->a_major][c->b_major], axes[c->ragged],
             e->alpha ? "any" : "1", betas[e->beta], c->align ? c->align : 16,
             *letters ? " pointers=" : "", letters,
             c->dequantize ? " dequantize=" : "",
             c->dequantize ? qn_dequantize_name(c->dequantize) : "",
             c->outside && !d.grouped ? " outside=zero" : "");
}

/* ----------------------------------------------------------------- operands */

/* The two axes of the element (x, y) of qt_place_at. */
static void axes_of(int role, int axes[2])
{
    axes[0] = role == QT_B ? QUERN_AXIS_N : QUERN_AXIS_M;
    axes[1] = role <= QT_B ? QUERN_AXIS_K : QUERN_AXIS_N;
}

void qt_place_of(const struct qt_case *c, int role, struct qt_place *p)
{
    int axes[2];

    axes_of(role, axes);
    p->type = role > QT_B                              ? c->d_type
              : c->recipe && c->recipe->x == QUERN_F16 ? QUERN_F16
                                                       : c->type;
    p->bytes = p->type == QUERN_F32 ? 4 : 2;
    p->swapped = (role == QT_A && c->a_major == QUERN_MAJOR_MN) ||
                 (role == QT_B && c->b_major == QUERN_MAJOR_MN);
    p->grouped = axes[0] != c->ragged && axes[1] != c->ragged;
    p->inner_ragged = axes[!p->swapped] == c->ragged && !p->grouped;
    p->rows = qt_length(c, axes[p->swapped]);
    p->columns = qt_length(c, axes[!p->swapped]);
    p->stride = p->columns + c->pad[role];
    p->pitch = p->grouped ? p->rows * p->stride + c->gap[role] : 0;
    p->elements = p->grouped ? c->groups * p->pitch : p->rows * p->stride;
}

/* By address they are in the order 0, 5, 10, ... modulo the groups, so that
   no two neighbours stay neighbours, and none is where its number says. */
static int64_t matrix_at(const struct qt_case *c, const struct qt_place *p,
                         int role, int group)
{
    int step = c->groups % 5 ? 5 : c->groups % 3 ? 3 : 7;

    if (!p->grouped || !c->pointers[role])
        return group * p->pitch;
    if (c->groups % step == 0)
        step = 1;
    return ((int64_t)group * step + c->groups / 2) % c->groups * p->pitch;
}

int64_t qt_place_at(const struct qt_case *c, const struct qt_place *p, int role,
                    int group, int64_t x, int64_t y)
{
    int axes[2];

    axes_of(role, axes);
    if (axes[0] == c->ragged && !p->grouped)
        x += c->start[group];
    if (axes[1] == c->ragged && !p->grouped)
        y += c->start[group];
    return matrix_at(c, p, role, group) +
           (p->swapped ? y * p->stride + x : x * p->stride + y);
}

/* -------------------------------------------------------------------- sizes */

/* A value beyond int32 is cut on purpose where the type is int32. */
void qt_sizes_set(void *array, int sizes_type, int index, int64_t value)
{
    if (sizes_type == QUERN_I64)
        ((int64_t *)array)[index] = value;
    else
        ((int32_t *)array)[index] = (int32_t)value;
}

void qt_sizes_write(const struct qt_case *c, void *first, void *offsets)
{
    for (int g = 0; first && g < c->groups; g++)
        qt_sizes_set(first, c->sizes_type, g, c->length[g]);
    for (int g = 0; offsets && g <= c->groups; g++)
        qt_sizes_set(offsets, c->sizes_type, g, c->start[g]);
}

/* ---------------------------------------------------------------- arguments */

void qt_pointers_write(const struct qt_case *c, int role, void *data,
                       void **pointers)
{
    struct qt_place p;

    qt_place_of(c, role, &p);
    for (int g = 0; g < c->groups; g++)
        pointers[g] = (char *)data + matrix_at(c, &p, role, g) * p.bytes;
}

/* One operand: its position, and the gaps in its rows and matrices. */
static void set_operand(const struct qt_case *c, int role,
                        const struct qt_addresses *at, struct qn_tensor *t)
{
    struct qt_place p;

    qt_place_of(c, role, &p);
    t->sizes_type = c->sizes_type;
    if (qt_scaled(c, role)) {
        t->data = at->operand[role];
        t->sf = at->sf[role];
        t->global = at->global[role];
        return;
    }
    t->stride = p.stride;
    t->bytes = (size_t)(p.elements * p.bytes);
    if (p.grouped && c->pointers[role]) {
        t->pointers = at->pointers[role];
        return;
    }
    t->data = at->operand[role];
    if (p.grouped && c->gap[role])
        t->group_stride = p.pitch;
}

/* The first ragged operand tells the sizes, of whichever axis. */
static void set_sizes(const struct qt_case *c, const struct qt_addresses *at,
                      struct qn_args *args)
{
    struct qn_tensor *tensors[] = {&args->a, &args->b};

    for (int role = QT_A; role <= QT_B; role++) {
        struct qt_place p;

        qt_place_of(c, role, &p);
        if (p.grouped)
            continue;
        tensors[role]->offsets = at->offsets;
        if (p.inner_ragged)
            tensors[role]->last_dims = at->first;
        else
            tensors[role]->first_dims = at->first;
        return;
    }
}

void qt_args_set(const struct qt_case *c, const struct qt_data *data,
                 const struct qt_addresses *at, struct qn_args *args)
{
    const struct qt_epilogue *e = qt_case_epilogue(c);

    set_operand(c, QT_A, at, &args->a);
    set_operand(c, QT_B, at, &args->b);
    set_operand(c, QT_D, at, &args->d);
    if (e->beta == QUERN_BETA_ANY)
        set_operand(c, e->apart ? QT_C : QT_D, at, &args->c);
    set_sizes(c, at, args);
    args->alpha = e->alpha ? at->alpha : NULL;
    args->beta = e->beta == QUERN_BETA_ANY ? at->beta : NULL;
    args->scalars = data->scalars;
    args->workspace = at->workspace;
}

/* An operand, and its scales, which follow it. */
static void give_operand(const struct qt_case *c, int role,
                         const struct qt_addresses *at, struct quern_buffer *b)
{
    struct qt_place p;

    qt_place_of(c, role, &p);
    if (qt_scaled(c, role)) {
        b[0].data = at->operand[role];
        b[1].data = at->sf[role];
        b[2].data = at->global[role];
        return;
    }
    b->stride = p.stride;
    if (p.grouped && c->pointers[role]) {
        b->pointers = at->pointers[role];
        return;
    }
    b->data = at->operand[role];
    if (p.grouped && c->gap[role])
        b->group_stride = p.pitch;
}

void qt_args_give(const struct qt_case *c, const struct qt_data *data,
                  const struct qt_addresses *at, struct quern_args *args)
{
    const struct quern_args empty = QUERN_ARGS_INIT;
    const struct qt_epilogue *e = qt_case_epilogue(c);
    const struct quern_buffer none = {.data = NULL},
                              first = {.data = (void *)at->first,
                                       .type = c->sizes_type},
                              offsets = {.data = (void *)at->offsets,
                                         .type = c->sizes_type};

    *args = empty;
    give_operand(c, QT_A, at, &args->of[QUERN_ARG_A]);
    give_operand(c, QT_B, at, &args->of[QUERN_ARG_B]);
    give_operand(c, QT_D, at, &args->of[QUERN_ARG_D]);
    if (e->beta == QUERN_BETA_ANY)
        give_operand(c, e->apart ? QT_C : QT_D, at, &args->of[QUERN_ARG_C]);
    args->of[QUERN_ARG_LENGTHS] = c->ragged == QUERN_AXIS_NONE ? none : first;
    args->of[QUERN_ARG_STARTS] = c->ragged == QUERN_AXIS_NONE ? none : offsets;
    if (e->alpha)
        args->of[QUERN_ARG_ALPHA].data = (void *)at->alpha;
    if (e->beta == QUERN_BETA_ANY)
        args->of[QUERN_ARG_BETA].data = (void *)at->beta;
    args->scalars = data->scalars;
    args->of[QUERN_ARG_WORKSPACE].data = at->workspace;
}

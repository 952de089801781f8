/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c: grouped products of small whole values, from the definition. */
#include "support/exact.h"

#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/element.h"

const int64_t exact_sizes[GROUPS] = {3, 0, 1, 7, 4};
const float exact_alphas[GROUPS] = {0.5f, 2, 1.5f, -1, 1};
const float exact_betas[GROUPS] = {2, -1, 0.5f, 1, 0};

static int64_t length_of(const struct qn_problem *p, int axis)
{
    return axis == QUERN_AXIS_M ? p->m : axis == QUERN_AXIS_N ? p->n : p->k;
}

/* In elements, of (i, j) of a group whose ragged axis begins at `start`. */
static size_t place(const struct exact_operand *o, int ragged, int group,
                    int64_t start, int64_t i, int64_t j)
{
    int grouped = o->axes[0] != ragged && o->axes[1] != ragged;

    i += o->axes[0] == ragged ? start : 0;
    j += o->axes[1] == ragged ? start : 0;
    return (size_t)((grouped ? group * o->group_stride : 0) +
                    (o->swapped ? j * o->stride + i : i * o->stride + j));
}

void exact_fill(const struct run *r, int role, size_t bytes, uint32_t seed)
{
    static const int most[EXACT_ROLES] = {2, 1, 3, 3};
    const struct exact_operand *o = &r->x[role];

    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        seed = seed * 1664525 + 1013904223;
        qn_element_store(
            o->data, o->type, i,
            (float)((int)(seed >> 16) % (2 * most[role] + 1) - most[role]));
    }
}

/* Its address on the host, and the same for the library. */
static void lay_out(struct run *r, int role, int first, int second, int swapped,
                    struct qn_tensor *tensor, void *data, size_t bytes)
{
    const int wide = r->form->wide > (role == EXACT_C);
    struct exact_operand *o = &r->x[role];
    int64_t rows = length_of(&r->p, swapped ? second : first);

    *o = (struct exact_operand){
        {first, second}, swapped, tensor->type, 0, 0, data};
    o->stride = length_of(&r->p, swapped ? first : second) + (wide ? 3 : 0);
    o->group_stride = rows * o->stride + (wide ? 5 : 0);
    tensor->data = data;
    tensor->bytes = bytes;
    if (wide)
        tensor->stride = o->stride;
    if (wide && first != r->p.ragged && second != r->p.ragged)
        tensor->group_stride = o->group_stride;
}

/* m, n and k are those of a uniform batch, but for the ragged axis. */
static int parse(struct quern_context *ctx, const struct form *f, int scale,
                 struct qn_problem *p)
{
    char text[96];
    int code;

    snprintf(text, sizeof text, "wgrad %s g=%d m=%d n=%d k=%d", f->recipe,
             GROUPS, 18 * scale, 5 * scale, 7 * scale);
    code = qn_problem_parse(ctx, text, p);
    if (code)
        return code;
    p->a_major = f->a_major;
    p->b_major = f->b_major;
    p->ragged = f->ragged;
    p->d_type = f->d_type;
    p->alpha = f->alpha;
    p->beta = f->beta;
    p->sizes = f->sizes;
    if (f->ragged)
        *(f->ragged == QUERN_AXIS_M   ? &p->m
          : f->ragged == QUERN_AXIS_N ? &p->n
                                      : &p->k) = TOTAL * scale;
    return QUERN_OK;
}

int exact_prepare(struct quern_context *ctx, const struct form *f,
                  void *const data[EXACT_ROLES], size_t bytes, struct run *r)
{
    const int scale = f->scale ? f->scale : 1;
    struct qn_description need;
    int code;

    *r = (struct run){.form = f};
    code = parse(ctx, f, scale, &r->p);
    if (!code)
        code = qn_problem_describe(ctx, &r->p, &need);
    if (code)
        return code;
    r->args = need.args;
    lay_out(r, EXACT_A, QUERN_AXIS_M, QUERN_AXIS_K, f->a_major, &r->args.a,
            data[EXACT_A], bytes);
    lay_out(r, EXACT_B, QUERN_AXIS_N, QUERN_AXIS_K, f->b_major, &r->args.b,
            data[EXACT_B], bytes);
    if (f->beta == QUERN_BETA_ANY)
        lay_out(r, EXACT_C, QUERN_AXIS_M, QUERN_AXIS_N, 0, &r->args.c,
                data[EXACT_C], bytes);
    lay_out(r, EXACT_D, QUERN_AXIS_M, QUERN_AXIS_N, 0, &r->args.d,
            data[EXACT_D], bytes);
    for (int g = 0; g < GROUPS; g++)
        r->sizes[g] = exact_sizes[g] * scale;
    r->args.scalars = f->scalars;
    return QUERN_OK;
}

/* The element at (i, j). */
static float load(const struct run *r, int role, int group, int64_t start,
                  int64_t i, int64_t j)
{
    const struct exact_operand *o = &r->x[role];

    return qn_element_load(o->data, o->type,
                           place(o, r->p.ragged, group, start, i, j));
}

/* One value of D. */
static float expected(const struct run *r, int group, int64_t start, int64_t i,
                      int64_t j, int64_t length)
{
    const struct form *f = r->form;
    int scalar = f->scalars > 1 ? group : 0;
    float sum = 0;

    for (int64_t k = 0; k < length; k++)
        sum += load(r, EXACT_A, group, start, i, k) *
               load(r, EXACT_B, group, start, j, k);
    if (f->alpha)
        sum *= exact_alphas[scalar];
    if (f->beta == QUERN_BETA_ONE)
        sum += load(r, EXACT_D, group, start, i, j);
    if (f->beta == QUERN_BETA_ANY && exact_betas[scalar] != 0)
        sum += exact_betas[scalar] * load(r, EXACT_C, group, start, i, j);
    return sum;
}

void exact_refer(const struct run *r, void *want, size_t bytes)
{
    const struct exact_operand *d = &r->x[EXACT_D];
    int64_t start = 0;

    memcpy(want, d->data, bytes);
    for (int g = 0; g < GROUPS; g++) {
        int64_t lengths[] = {1, r->p.m, r->p.n, r->p.k}; /* by the axis */

        lengths[r->p.ragged] = r->sizes[g];
        for (int64_t i = 0; i < lengths[QUERN_AXIS_M]; i++)
            for (int64_t j = 0; j < lengths[QUERN_AXIS_N]; j++)
                qn_element_store(
                    want, d->type, place(d, r->p.ragged, g, start, i, j),
                    expected(r, g, start, i, j, lengths[QUERN_AXIS_K]));
        start += r->sizes[g];
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: the casts and products of a layer's training step. */
#include "support/step.h"

#include "oracle/gpu.h"
#include "base/types.h"
#include "device/check.h"
#include "quantize/quantize_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for each part of a tensor; its addresses. */
static int make_tensor(struct qt_step *s, struct qn_memory *parts,
                       struct qn_tensor *t)
{
    int code = qn_memory_new(&parts[QT_STEP_DATA], s->gpu, t->bytes);

    if (!code)
        code = qn_memory_new(&parts[QT_STEP_SF], s->gpu, t->sf_bytes);
    if (!code)
        code = qn_memory_new(&parts[QT_STEP_GLOBAL], s->gpu, t->global_bytes);
    t->data = parts[QT_STEP_DATA].data;
    t->sf = parts[QT_STEP_SF].data;
    t->global = t->global_bytes ? parts[QT_STEP_GLOBAL].data : NULL;
    return code;
}

static int make_workspace(struct qt_step *s, struct qn_memory *m, size_t bytes)
{
    int code = qn_memory_new(m, s->gpu, bytes + 1);

    return code ? code : qn_memory_workspace(m);
}

/* Quantizes x, w or dy into both tensors. */
static int begin_copies(struct qt_step *s, int of)
{
    static const char *const names[] = {"x", "w", "dy"};
    const struct qn_plan_options options = {.backend = s->backend};
    struct qt_step_copies *c = &s->copies[of];
    struct qn_quantize_description need;
    struct qn_quantization q;
    char line[256];
    int code;

    snprintf(line, sizeof line, "quantize %s of=%s g=%d m=%lld k=%lld in=f32",
             s->recipe->name, of == QN_DY && s->nearest ? "x" : names[of],
             s->groups, (long long)(of == QN_W ? s->outputs : s->tokens),
             (long long)(of == QN_DY ? s->outputs : s->features));
    code = qn_quantize_parse(qt_context, line, &q);
    if (!code)
        code = qn_quantize_needs(qt_context, &q, &need);
    if (!code)
        code = qn_quantize_plan(qt_context, &q, &options, &c->plan);
    if (code)
        return code;
    c->args = need.args;
    code = qn_memory_new(&c->numbers, s->gpu, need.args.in.bytes);
    if (!code)
        code = make_workspace(s, &c->workspace, need.workspace_bytes);
    if (!code)
        code = make_tensor(s, c->row, &c->args.row);
    if (!code)
        code = make_tensor(s, c->column, &c->args.column);
    c->args.in.data = c->numbers.data;
    c->args.first_dims = of == QN_W ? NULL : s->lengths.data;
    c->args.sizes_type = QUERN_I64;
    c->args.random = need.random ? (void *)s->random.data : NULL;
    c->args.workspace = c->workspace.data;
    return code;
}

/* One of the products; A and B are copies that were made before. */
static int begin_product(struct qt_step *s, int op)
{
    const struct qt_step_copies *c = s->copies;
    const struct qn_tensor *operands[][2] = {
        {&c[QN_X].args.row, &c[QN_W].args.row},
        {&c[QN_DY].args.row, &c[QN_W].args.column},
        {&c[QN_DY].args.column, &c[QN_X].args.column}};
    const long long t = s->tokens, f = s->features, o = s->outputs;
    const long long sides[][3] = {{t, o, f}, {t, f, o}, {o, f, t}};
    const struct qn_plan_options options = {.backend = s->backend};
    struct qt_step_product *p = &s->products[op];
    struct qn_description need;
    struct qn_problem problem;
    char line[256];
    int code;

    snprintf(line, sizeof line, "%s %s g=%d m=%lld n=%lld k=%lld d=f32",
             qn_op_name(op), s->recipe->name, s->groups, sides[op][0],
             sides[op][1], sides[op][2]);
    code = qn_problem_parse(qt_context, line, &problem);
    if (!code)
        code = qn_problem_describe(qt_context, &problem, &need);
    if (!code)
        code = qn_plan(qt_context, &problem, &options, &p->plan);
    if (code)
        return code;
    p->args = need.args;
    p->args.a = *operands[op][0];
    p->args.b = *operands[op][1];
    *(op == QUERN_WGRAD ? &p->args.a.last_dims : &p->args.a.first_dims) =
        s->lengths.data;
    p->args.a.sizes_type = QUERN_I64;
    code = qn_memory_new(&p->d, s->gpu, need.args.d.bytes);
    if (!code)
        code = make_workspace(s, &p->workspace, need.workspace_bytes);
    p->args.d.data = p->d.data;
    p->args.workspace = p->workspace.data;
    p->result = malloc(p->d.bytes);
    return code ? code : p->result ? QUERN_OK : QUERN_ENOMEM;
}

int qt_step_begin(struct qt_step *s)
{
    const size_t bytes = (size_t)s->groups * sizeof *s->sizes;
    int code = QUERN_OK;

    if (s->backend != QUERN_BACKEND_HOST)
        code = qn_gpu_open(qt_context, &s->gpu);
    if (!code)
        code = qn_memory_new(&s->lengths, s->gpu, bytes);
    if (!code)
        code = qn_memory_write(&s->lengths, 0, s->sizes, bytes);
    if (!code)
        code = qn_memory_new(&s->random, s->gpu, 2 * sizeof(uint64_t));
    for (int of = 0; of < 3 && !code; of++)
        code = begin_copies(s, of);
    for (int op = 0; op < 3 && !code; op++)
        code = begin_product(s, op);
    s->x = calloc(1, s->copies[QN_X].numbers.bytes + 1);
    s->w = calloc(1, s->copies[QN_W].numbers.bytes + 1);
    s->dy = calloc(1, s->copies[QN_DY].numbers.bytes + 1);
    return code ? code : s->x && s->w && s->dy ? QUERN_OK : QUERN_ENOMEM;
}

void qt_step_free(struct qt_step *s)
{
    for (int i = 0; i < 3; i++) {
        struct qt_step_copies *c = &s->copies[i];
        struct qt_step_product *p = &s->products[i];

        qn_quantize_plan_free(c->plan);
        qn_plan_free(p->plan);
        qn_memory_free(&c->numbers);
        qn_memory_free(&c->workspace);
        for (int part = 0; part < QT_STEP_PARTS; part++) {
            qn_memory_free(&c->row[part]);
            qn_memory_free(&c->column[part]);
        }
        qn_memory_free(&p->d);
        qn_memory_free(&p->workspace);
        free(p->result);
    }
    qn_memory_free(&s->lengths);
    qn_memory_free(&s->random);
    free(s->x);
    free(s->w);
    free(s->dy);
    qn_gpu_close(s->gpu);
}

static int quantize(struct qt_step *s, int of, const float *numbers)
{
    struct qt_step_copies *c = &s->copies[of];
    int code = qn_memory_write(&c->numbers, 0, numbers, c->numbers.bytes);

    if (!code)
        code = qn_quantize_run(c->plan, &c->args, NULL);
    return code ? code
                : qn_check_record(c->plan->driver, c->plan->context,
                                  c->args.workspace, &c->args.in, "quern_check",
                                  NULL);
}

static int multiply(struct qt_step *s, int op)
{
    struct qt_step_product *p = &s->products[op];
    int code = qn_memory_clear(&p->d, QN_MEMORY_POISON);

    if (!code)
        code = qn_run(p->plan, &p->args, NULL);
    if (!code)
        code = qn_check(p->plan, &p->args, NULL);
    return code ? code : qn_memory_read(&p->d, 0, p->result, p->d.bytes);
}

int qt_step_forward(struct qt_step *s)
{
    int code = quantize(s, QN_X, s->x);

    if (!code)
        code = quantize(s, QN_W, s->w);
    return code ? code : multiply(s, QUERN_FPROP);
}

int qt_step_backward(struct qt_step *s, uint64_t seed)
{
    const uint64_t random[] = {seed, 0};
    int code = qn_memory_write(&s->random, 0, random, sizeof random);

    if (!code)
        code = quantize(s, QN_DY, s->dy);
    if (!code)
        code = multiply(s, QUERN_DGRAD);
    return code ? code : multiply(s, QUERN_WGRAD);
}

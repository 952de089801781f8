/* SPDX-License-Identifier: Apache-2.0 */
/* args_overlap.c: a run's outputs, D and the workspace, overlap none of its
   inputs. */
#include "product/args.h"
#include "base/error.h"
#include "base/region.h"
#include "base/sizes_type.h"
#include "base/types.h"
#include "problem/gradient_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "product/plan.h"

struct qn_region qn_args_region(const struct qn_plan *plan,
                                const struct qn_args *args, int role)
{
    const struct qn_tensor *tensor = qn_args_tensor(args, role);
    struct qn_region r = {.data = tensor->data};

    if (!tensor->pointers)
        r.bytes = (size_t)qn_geometry_bytes(
            &plan->operands[role], tensor->stride, tensor->group_stride);
    return r;
}

/* C is D where both have the same place for every element. */
static int same_place(const struct qn_plan *plan, const struct qn_args *args)
{
    const struct qn_tensor *c = &args->c, *d = &args->d;
    const struct qn_geometry *g = &plan->operands[QN_ROLE_D];

    return c->data == d->data && c->pointers == d->pointers &&
           qn_args_stride(c, g) == qn_args_stride(d, g) &&
           qn_args_group_stride(c, g) == qn_args_group_stride(d, g);
}

/* C's elements must be read before the same ones are written, or never be. */
static int check_c_overlap(const struct qn_plan *plan,
                           const struct qn_args *args)
{
    const struct qn_tensor *c = &args->c, *d = &args->d;
    const struct qn_region x = qn_args_region(plan, args, QN_ROLE_C),
                           y = qn_args_region(plan, args, QN_ROLE_D);
    int shared =
        (c->pointers && c->pointers == d->pointers) || qn_region_meets(&x, &y);

    if (!shared || same_place(plan, args))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "c%s overlaps d%s: C must be D itself, with the same "
                        "strides, or not overlap it",
                        c->data ? "" : ".pointers", c->data ? "" : ".pointers");
}

/* Scales that the rowwise and the columnwise tensor of a result may have; then
   those that a run makes of `in`. */
enum { SF = 1, GLOBAL, MADE_SF, MADE_GLOBAL };
enum { FIELDS = 4, OTHERS = 23 }; /* of an operand; of a run besides */

/* List the arrays; one that is NULL or has no bytes is left out, as most of it
   is in most runs, and every run comes here. */
struct list {
    struct qn_region at[OTHERS + QN_ROLES * FIELDS];
    int count;
};

static void add(struct list *l, const char *name, const void *data,
                size_t bytes, int written)
{
    if (data && bytes)
        l->at[l->count++] = (struct qn_region){name, data, bytes, written, 0};
}

/* Scales that were just added: the rowwise and the columnwise tensor of a
   result may have the same. */
static void share(struct list *l, const char *name, int same, int alike)
{
    if (same && l->count && l->at[l->count - 1].name == name)
        l->at[l->count - 1].alike = alike;
}

/* All that an operand names; sizes only of the one that has them. */
static void list_operand(const struct qn_plan *plan, const struct qn_args *args,
                         int role, int sizes, struct list *l)
{
#define NAMES(x)                                                               \
    {                                                                          \
        x, x ".sf", x ".global", x ".pointers"                                 \
    }
    static const char *const fields[QN_ROLES][FIELDS] = {
        NAMES("a"), NAMES("b"),   NAMES("c"),
        NAMES("d"), NAMES("pre"), NAMES("d_columnwise")};
#undef NAMES
    const char *const *names = fields[role];
    const struct qn_tensor *t = qn_args_tensor(args, role);
    const struct qn_region data = qn_args_region(plan, args, role);
    const int made = role == QN_ROLE_A && plan->problem.quantize;
    const int read = role == QN_ROLE_P && qn_geometry_backward(&plan->problem);
    const size_t groups = (size_t)plan->problem.groups,
                 entry = qn_sizes_entry(t->sizes_type);
    const struct qn_scaling *s = plan->operands[role].sf.scaling;
    const int first = l->count;

    add(l, names[0], data.data, data.bytes,
        (role >= QN_ROLE_D && !read) || made);
    if (l->count > first) /* see check_c_overlap */
        l->at[first].alike = -(role == QN_ROLE_C || role == QN_ROLE_D);
    if (s) {
        const int written = made || role >= QN_ROLE_D;

        add(l, names[1], t->sf, t->sf_bytes, written);
        share(l, names[1], written && qn_quantize_same_sf(s),
              made ? MADE_SF : SF);
        add(l, names[2], t->global, t->global_bytes, written);
        share(l, names[2], written && !s->hadamard,
              made ? MADE_GLOBAL : GLOBAL);
    }
    if (sizes) {
        add(l, "lengths", qn_args_lengths(t, &plan->operands[role]),
            groups * entry, 0);
        add(l, qn_sizes_operand(t->sizes_type), t->offsets,
            qn_sizes_count(t->sizes_type, plan->problem.groups) * entry, 0);
    }
    add(l, names[3], t->pointers, groups * sizeof(void *), 0);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The bytes that a run reads of `in`, however much else is after it. A stride
   that is none is refused later. */
static size_t bytes_of_in(const struct qn_problem *p,
                          const struct qn_tensor *in)
{
    const int64_t stride = in->stride ? in->stride : p->k;

    if (p->m == 0 || stride < p->k || stride > INT32_MAX)
        return in->bytes;
    return least(in->bytes,
                 (size_t)((p->m - 1) * stride + p->k) * sizeof(uint16_t));
}

/* The host backend reads the addresses of matrices, so they are checked. */
static int check_matrices(const struct qn_plan *plan,
                          const struct qn_args *args, const struct list *l)
{
    const int ragged = plan->problem.ragged;
    struct qn_matrices list[QN_ROLE_D + 1];
    unsigned char rows[QUERN_MAX_GROUPS];
    const void *lengths, *offsets;
    int count = 0, type;

    for (int role = QN_ROLE_A; role <= QN_ROLE_D; role++) {
        const struct qn_tensor *t = qn_args_tensor(args, role);
        const struct qn_geometry *g = &plan->operands[role];
        const int64_t elements =
            (g->rows - 1) * qn_args_stride(t, g) + g->columns;

        if (!t->pointers || !qn_args_has(plan, args, role))
            continue;
        list[count++] = (struct qn_matrices){
            .name = qn_args_names[role],
            .pointers = t->pointers,
            .bytes = (size_t)(elements * qn_type_bits(g->type) / 8),
            .alignment = (size_t)qn_problem_alignment(&plan->problem, g->type),
            .written = role == QN_ROLE_D,
            .alike = role >= QN_ROLE_C,
            .all = ragged == QUERN_AXIS_K || ragged == QUERN_AXIS_NONE};
    }
    if (!count)
        return QUERN_OK;
    qn_args_given(plan, args, &lengths, &offsets, &type);
    qn_sizes_rows(lengths, offsets, type, plan->problem.groups, rows);
    return qn_region_matrices(list, count, plan->problem.groups, rows, l->at,
                              l->count);
}

/* Adapters, and lora_t with as many rows as the run has. */
static void add_lora(const struct qn_plan *plan, const struct qn_args *args,
                     struct list *l)
{
    const struct qn_args *need = &plan->need.args;

    add(l, "lora_a", args->lora_a.data, need->lora_a.bytes, 0);
    add(l, "lora_b", args->lora_b.data, need->lora_b.bytes, 0);
    add(l, "lora_t", args->lora_t.data, need->lora_t.bytes, 1);
    add(l, "lora_scale", args->lora_scale, sizeof *args->lora_scale, 0);
}

int qn_args_overlap(const struct qn_plan *plan, const struct qn_args *args)
{
    const size_t factors =
        args->scalars > 1 ? (size_t)args->scalars : 1; /* of each */
    const struct qn_problem *p = &plan->problem;
    const size_t rows = (size_t)p->m * sizeof(float);
    const struct qn_tensor *in = &args->in, *column = &args->column;
    const struct qn_tensor *need = &plan->need.args.column;
    const struct qn_scaling *made = plan->operands[QN_ROLE_A].sf.scaling;
    const int from = qn_args_sizes(plan, args);
    struct list l;
    int code;

    l.count = 0;
    add(&l, "workspace", args->workspace, plan->need.workspace_bytes, 1);
    add(&l, "alpha", args->alpha, factors * sizeof(float), 0);
    add(&l, "beta", args->beta, factors * sizeof(float), 0);
    add(&l, "noop", args->noop, sizeof *args->noop, 0);
    add(&l, "bias", args->bias,
        (size_t)p->groups * (size_t)p->n * sizeof(float), 0);
    add(&l, "prob", args->probability, rows, 0);
    add(&l, "gather", args->gather, (size_t)p->m * sizeof *args->gather, 0);
    add(&l, "scatter", args->scatter, (size_t)p->m * sizeof *args->scatter, 0);
    add(&l, "d_addresses", args->addresses,
        (size_t)p->m * sizeof *args->addresses, 0);
    add(&l, "dbias", args->dbias, qn_gradient_dbias(p), 1);
    add(&l, "dprob", args->dprob, rows, 1);
    add(&l, "scale", args->scale, 2 * sizeof(float), 0);
    add(&l, "history", args->history,
        (size_t)plan->need.history * sizeof(float), 1);
    add(&l, "random", args->random, 2 * sizeof(uint64_t), 0);
    add(&l, "host_sizes", args->host_sizes,
        (size_t)p->groups * sizeof *args->host_sizes, 0);
    add(&l, "input", in->data, bytes_of_in(p, in), 0);
    add(&l, "a_columnwise", column->data, least(column->bytes, need->bytes), 1);
    add(&l, "a_columnwise.sf", column->data ? column->sf : NULL,
        least(column->sf_bytes, need->sf_bytes), 1);
    share(&l, "a_columnwise.sf", made && qn_quantize_same_sf(made), MADE_SF);
    add(&l, "a_columnwise.global", column->data ? column->global : NULL,
        least(column->global_bytes, need->global_bytes), 1);
    share(&l, "a_columnwise.global", made && !made->hadamard, MADE_GLOBAL);
    if (p->lora)
        add_lora(plan, args, &l);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if (qn_args_has(plan, args, role))
            list_operand(plan, args, role, role == from, &l);
    code = qn_region_check(l.at, l.count);
    if (!code && qn_args_has(plan, args, QN_ROLE_C))
        code = check_c_overlap(plan, args);
    return code || plan->driver ? code : check_matrices(plan, args, &l);
}

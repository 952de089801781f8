/*
** args_overlap.c: what a run writes, D and the workspace, is nothing that it
** reads.
*/
#include "args.h"
#include "gradient.h"

#include <string.h>

struct qn_region qn_args_region(const struct quern_plan *plan,
                                const struct quern_args *args, int role)
{
    const struct quern_tensor *tensor = qn_args_tensor(args, role);
    struct qn_region r = {.data = tensor->data};

    if (!tensor->pointers)
        r.bytes = (size_t)qn_geometry_bytes(
            &plan->operands[role], tensor->stride, tensor->group_stride);
    return r;
}

/* C is D where both have the same place for every element. */
static int same_place(const struct quern_plan *plan,
                      const struct quern_args *args)
{
    const struct quern_tensor *c = &args->c, *d = &args->d;
    const struct qn_geometry *g = &plan->operands[QN_ROLE_D];

    return c->data == d->data && c->pointers == d->pointers &&
           qn_args_stride(c, g) == qn_args_stride(d, g) &&
           qn_args_group_stride(c, g) == qn_args_group_stride(d, g);
}

/* C's elements must be read before the same ones are written, or never be. */
static int check_c_overlap(const struct quern_plan *plan,
                           const struct quern_args *args)
{
    const struct quern_tensor *c = &args->c, *d = &args->d;
    const struct qn_region x = qn_args_region(plan, args, QN_ROLE_C),
                           y = qn_args_region(plan, args, QN_ROLE_D);
    int shared =
        (c->pointers && c->pointers == d->pointers) || qn_region_meets(&x, &y);

    if (!shared || same_place(plan, args))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "c.%s overlaps d.%s: C must be D itself, with the same "
                        "strides, or lie apart",
                        c->data ? "data" : "pointers",
                        c->data ? "data" : "pointers");
}

enum { DATA, SF, GLOBAL, LENGTHS, OFFSETS, POINTERS, FIELDS, OTHERS = 11 };

/* All that an operand names, into `list`; sizes only of the one that has
   them. Returns how many. */
static int list_operand(const struct quern_plan *plan,
                        const struct quern_args *args, int role, int sizes,
                        struct qn_region list[FIELDS])
{
#define NAMES(x)                                                               \
    {                                                                          \
        x ".data", x ".sf", x ".global", x "'s lengths", x ".offsets",         \
            x ".pointers"                                                      \
    }
    static const char *const fields[QN_ROLES][FIELDS] = {
        NAMES("a"), NAMES("b"), NAMES("c"), NAMES("d"), NAMES("p"), NAMES("t")};
#undef NAMES
    const struct quern_tensor *t = qn_args_tensor(args, role);
    const int made = role == QN_ROLE_A && plan->problem.quantize;
    const int read = role == QN_ROLE_P && qn_geometry_back(&plan->problem);
    const size_t groups = (size_t)plan->problem.groups,
                 entry = t->sizes_type == QUERN_I64 ? 8 : 4;

    memset(list, 0, FIELDS * sizeof *list);
    list[DATA] = qn_args_region(plan, args, role);
    list[DATA].written = (role >= QN_ROLE_D && !read) || made;
    list[DATA].alike =
        role == QN_ROLE_C || role == QN_ROLE_D; /* see check_c_overlap */
    if (plan->operands[role].sf.scaling) {
        const int written = made || role >= QN_ROLE_D;

        list[SF] = (struct qn_region){
            .data = t->sf, .bytes = t->sf_bytes, .written = written};
        list[GLOBAL] = (struct qn_region){
            .data = t->global, .bytes = t->global_bytes, .written = made};
    }
    if (sizes) {
        list[LENGTHS] = (struct qn_region){
            .data = qn_args_lengths(t, &plan->operands[role]),
            .bytes = groups * entry};
        list[OFFSETS] = (struct qn_region){.data = t->offsets,
                                           .bytes = (groups + 1) * entry};
    }
    list[POINTERS] = (struct qn_region){.data = t->pointers,
                                        .bytes = groups * sizeof(void *)};
    for (int i = 0; i < FIELDS; i++)
        list[i].name = fields[role][i];
    return FIELDS;
}

int qn_args_overlap(const struct quern_plan *plan,
                    const struct quern_args *args)
{
    const size_t factors =
        args->scalars > 1 ? (size_t)args->scalars : 1; /* of each */
    const struct quern_problem *p = &plan->problem;
    const size_t bias = (size_t)p->groups * (size_t)p->n * sizeof(float);
    const struct quern_tensor *in = &args->in, *column = &args->column;
    struct qn_region list[OTHERS + QN_ROLES * FIELDS] = {
        {"workspace", args->workspace, plan->need.workspace_bytes, 1, 0},
        {"alpha", args->alpha, factors * sizeof(float), 0, 0},
        {"beta", args->beta, factors * sizeof(float), 0, 0},
        {"noop", args->noop, sizeof *args->noop, 0, 0},
        {"bias", args->bias, bias, 0, 0},
        {"probability", args->probability, (size_t)p->m * sizeof(float), 0, 0},
        {"dbias", args->dbias, qn_gradient_dbias(p), 1, 0},
        {"dprob", args->dprob, (size_t)p->m * sizeof(float), 1, 0},
        {"in.data", in->data, in->bytes, 0, 0},
        {"column.data", column->data, column->bytes, 1, 0},
        {"column.sf", column->sf, column->data ? column->sf_bytes : 0, 1, 0}};
    const int from = qn_args_sizes(plan, args);
    int count = OTHERS, code;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if (qn_args_has(plan, args, role))
            count += list_operand(plan, args, role, role == from, list + count);
    code = qn_region_check(list, count);
    return !code && qn_args_has(plan, args, QN_ROLE_C)
               ? check_c_overlap(plan, args)
               : code;
}

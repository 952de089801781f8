/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_given.c: the arguments of a run, from the operands that a caller gave.
** Nothing is read but struct quern_args itself.
*/
#include "api/api_use.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/mlp.h"
#include "product/plan.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

int qn_api_size(const char *what, size_t given, size_t known, const char *macro)
{
    if (given == known)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s.size is %zu: begin with %s, which sets it to %zu",
                        what, given, macro, known);
}

/* Bytes that a matrix or a stack of them spans with the caller's strides. */
static int64_t span_of(const struct qn_tensor *t)
{
    const int64_t columns = t->shape[t->ndim - 1], rows = t->shape[t->ndim - 2],
                  groups = t->ndim > 2 ? t->shape[0] : 1;
    const int64_t stride = t->stride ? t->stride : columns;
    const int64_t group = t->group_stride ? t->group_stride : rows * stride;
    int64_t bits;

    if (!groups || !rows || !columns)
        return 0;
    if (__builtin_mul_overflow(groups - 1, group, &bits) ||
        __builtin_add_overflow(bits, (rows - 1) * stride + columns, &bits) ||
        __builtin_mul_overflow(bits, qn_type_bits(t->type), &bits))
        return -1;
    return bits / 8 + (bits % 8 != 0);
}

/* For an operand that may have gaps: matrices only where there are some. */
static int check_gaps(const struct quern_operand *o,
                      const struct quern_buffer *b, int apart)
{
    const long long least = o->shape[o->ndim - 1].base;

    if (b->stride < 0 || b->stride > INT32_MAX)
        return qn_error_set(QUERN_EINVAL,
                            "%s.stride is %lld: 0 to %d elements are expected",
                            o->name, (long long)b->stride, INT32_MAX);
    if (b->stride && !o->shape[o->ndim - 1].step && b->stride < least)
        return qn_error_set(QUERN_EINVAL,
                            "%s.stride is %lld: 0 (packed) or %lld to %d is "
                            "expected",
                            o->name, (long long)b->stride, least, INT32_MAX);
    if (b->group_stride && (!apart || b->pointers))
        return qn_error_set(QUERN_EINVAL,
                            "%s.group_stride is %lld: 0 is expected, as %s",
                            o->name, (long long)b->group_stride,
                            b->pointers    ? "each matrix has an address"
                            : o->ndim == 3 ? "its matrices are contiguous"
                                           : "it has no group axis");
    if (b->group_stride < 0)
        return qn_error_set(QUERN_EINVAL,
                            "%s.group_stride is %lld: at least 0 is expected",
                            o->name, (long long)b->group_stride);
    return QUERN_OK;
}

static int check_strides(const struct quern_operand *o,
                         const struct quern_buffer *b, int kind)
{
    if (o->strided)
        return check_gaps(o, b, kind == QN_LINE_PRODUCT && o->ndim == 3);
    if (b->stride || b->group_stride)
        return qn_error_set(
            QUERN_EINVAL,
            "%s.%s is %lld: this operand is packed, 0 is expected", o->name,
            b->stride ? "stride" : "group_stride",
            (long long)(b->stride ? b->stride : b->group_stride));
    return QUERN_OK;
}

static int give_tensor(const struct quern_operand *o,
                       const struct quern_buffer *b, int64_t rows,
                       struct qn_tensor *t)
{
    int64_t bytes;

    t->data = b->data;
    t->pointers = b->pointers;
    if (rows >= 0)
        for (int i = 0; i < t->ndim; i++)
            t->shape[i] = quern_extent(&o->shape[i], rows);
    if (!b->stride && !b->group_stride) {
        if (rows >= 0)
            t->bytes = (size_t)quern_extent(&o->bytes, rows);
        if (rows >= 0 && t->stride)
            t->stride = quern_extent(&o->pitch, rows);
        return QUERN_OK;
    }
    if (b->stride)
        t->stride = b->stride;
    t->group_stride = b->group_stride;
    bytes = span_of(t);
    if (bytes < 0)
        return qn_error_set(QUERN_EINVAL,
                            "%s: its rows span more than 64 bits of bytes",
                            o->name);
    t->bytes = (size_t)bytes;
    return QUERN_OK;
}

static int give(const struct quern_plan *plan, const struct qn_slot *slot,
                const struct quern_operand *o, const struct quern_buffer *b,
                int64_t rows, union qn_given *given)
{
    void *at = (char *)given + slot->at[plan->line.kind];
    struct qn_tensor *t = at;

    switch (slot->form) {
    case QN_SLOT_TENSOR:
        return give_tensor(o, b, rows, t);
    case QN_SLOT_SF:
        t->sf = b->data;
        if (rows >= 0)
            t->sf_bytes = (size_t)quern_extent(&o->bytes, rows);
        return QUERN_OK;
    case QN_SLOT_GLOBAL:
        t->global = b->data;
        return QUERN_OK;
    default:
        memcpy(at, &b->data, sizeof b->data);
        return QUERN_OK;
    }
}

/* Scale factors go with their tensor, even with one that is optional. */
static int check_scales(const struct quern_operand *o,
                        const struct qn_slot *slot,
                        const struct quern_args *args, int used, int64_t rows)
{
    const int whole = o->arg - (int)slot->form;

    if (slot->form != QN_SLOT_SF && slot->form != QN_SLOT_GLOBAL)
        return QUERN_OK;
    if (!used || !args->of[whole].data || args->of[o->arg].data ||
        quern_extent(&o->bytes, rows) <= 0)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s is NULL: %s is given", o->name,
                        qn_api_name(whole));
}

/* Rules of an operand that is not simply packed in one buffer, by its row of
   the table. */
static int check_rules(const struct quern_operand *o,
                       const struct quern_buffer *b, int kind, int phases,
                       int64_t rows)
{
    const int used = (o->read | o->written) & phases;

    if (b->pointers && !o->pointers)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: this plan takes it in "
                            "one buffer",
                            o->name);
    if (b->pointers && b->data)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers and %s are both given: one of them "
                            "says where it is",
                            o->name, o->name);
    if ((uintptr_t)b->pointers % sizeof(void *))
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is %p: it must be a multiple of %zu",
                            o->name, (const void *)b->pointers, sizeof(void *));
    if (!b->data && !b->pointers && used && !(o->optional & used) &&
        quern_extent(&o->bytes, rows < 0 ? 0 : rows) > 0)
        return qn_error_set(QUERN_EINVAL, "%s is NULL: the plan needs it",
                            o->name);
    if ((uintptr_t)b->data & (o->alignment - 1))
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %zu", o->name,
                            b->data, o->alignment);
    return check_strides(o, b, kind);
}

/* Most operands are one address: it is all there is to check and to give. */
static int give_plain(const struct qn_place *place,
                      const struct quern_buffer *b, union qn_given *given)
{
    const uintptr_t data = (uintptr_t)b->data;

    if (((uintptr_t)b->pointers | (uintptr_t)b->stride |
         (uintptr_t)b->group_stride | (data & place->low)) ||
        (!data && !place->can_be_null))
        return 0;
    if (place->at >= 0)
        memcpy((char *)given + place->at, &b->data, sizeof b->data);
    return 1;
}

/* Operand `i` of the plan's; `rows`: -1, or fewer than the line's. */
static int give_operand(const struct quern_plan *plan, int i,
                        const struct quern_args *args, int phases, int64_t rows,
                        union qn_given *given)
{
    const struct quern_operand *o = &plan->operands[i];
    const struct quern_buffer *b = &args->of[o->arg];
    const struct qn_slot *slot = plan->slots[i];
    const int64_t of_run = rows < 0 ? plan->rows : rows;
    int code = check_rules(o, b, plan->line.kind, phases, of_run);

    if (code || !slot)
        return code;
    code = check_scales(o, slot, args, (o->read | o->written) & phases, of_run);
    return code ? code : give(plan, slot, o, b, rows, given);
}

/* Nothing that the plan would ignore. Usually there is none: one pass over
   pairs of addresses without branches, unrolled since every run makes it, says
   so. */
static int check_unknown(const struct quern_plan *plan,
                         const struct quern_args *args)
{
    qn_pair any = {0, 0}, given;

    static_assert(offsetof(struct quern_buffer, pointers) == sizeof(void *),
                  "the addresses come first, one after the other");
#pragma GCC unroll 16
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        memcpy(&given, &args->of[i], sizeof given);
        any |= given & plan->unknown[i];
    }
    for (int i = 0; (any[0] | any[1]) && i < QUERN_ARGS_COUNT; i++)
        if (plan->unknown[i][0] && (args->of[i].data || args->of[i].pointers))
            return qn_error_set(QUERN_EINVAL,
                                "%s is not NULL: the plan has no such operand",
                                qn_api_name(i));
    return QUERN_OK;
}

/* A run that would make nothing. */
static int check_gradients(const struct quern_args *args)
{
    const struct quern_buffer *dw1 = &args->of[QUERN_ARG_DW1],
                              *dw2 = &args->of[QUERN_ARG_DW2];

    if (args->phase != QUERN_PHASE_WGRAD || dw1->data || dw1->pointers ||
        dw2->data || dw2->pointers)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "dw1 and dw2 are NULL: QUERN_PHASE_WGRAD makes one of "
                        "them or both");
}

/* ------------------------------------------------------------------- sizes */

struct sizes {
    const void *lengths, *starts;
    int type;
};

static int check_type(const struct quern_buffer *b, const char *name, int type)
{
    if (type != QUERN_I32 && type != QUERN_I64)
        return qn_error_set(QUERN_EINVAL,
                            "%s.type is %s: i32 or i64 is expected", name,
                            qn_type_name(type));
    if (type == QUERN_I64 && (uintptr_t)b->data % 8)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of 8", name,
                            b->data);
    return QUERN_OK;
}

static int find_sizes(const struct quern_args *args, struct sizes *s)
{
    const char *last = NULL; /* that is given */
    int code = QUERN_OK;

    for (int arg = QUERN_ARG_LENGTHS; arg <= QUERN_ARG_ENDS && !code; arg++) {
        const struct quern_buffer *b = &args->of[arg];
        const int type = b->type ? b->type : QUERN_I32;

        if (!b->data)
            continue;
        if (last && arg == QUERN_ARG_ENDS)
            return qn_error_set(QUERN_EINVAL, "ends and %s are both given",
                                last);
        if (last && type != s->type)
            return qn_error_set(QUERN_EINVAL,
                                "lengths.type and starts.type differ");
        last = qn_api_name(arg);
        code = check_type(b, last, type);
        s->type = type;
        *(arg == QUERN_ARG_LENGTHS ? &s->lengths : &s->starts) = b->data;
    }
    if (args->of[QUERN_ARG_ENDS].data)
        s->type |= QN_SIZES_ENDS;
    if (!code && last && args->host_sizes)
        return qn_error_set(QUERN_EINVAL, "%s and host_sizes are both given",
                            last);
    if (!code && !last && !args->host_sizes &&
        args->phase != QUERN_PHASE_WEIGHTS)
        return qn_error_set(QUERN_EINVAL,
                            "lengths, starts and ends are NULL: the groups "
                            "have no sizes");
    return code;
}

/* Products have them in the first of A, B and D that is ragged. */
static void give_product_sizes(const struct quern_plan *plan,
                               const struct sizes *s, struct qn_args *args)
{
    static const int roles[] = {QN_ROLE_A, QN_ROLE_B, QN_ROLE_D};

    for (int i = 0; i < 3; i++) {
        const struct qn_geometry *g = &plan->of.product->operands[roles[i]];
        struct qn_tensor *t = i == 0 ? &args->a : i == 1 ? &args->b : &args->d;

        if (g->grouped || g->gathered)
            continue;
        t->first_dims = g->inner_ragged ? NULL : s->lengths;
        t->last_dims = g->inner_ragged ? s->lengths : NULL;
        t->offsets = s->starts;
        t->sizes_type = s->type;
        return;
    }
}

/* A route makes them, and int32. */
static int check_made(const struct quern_args *args)
{
    if (args->host_sizes)
        return qn_error_set(QUERN_EINVAL, "host_sizes is not NULL: a route "
                                          "makes the groups' sizes");
    for (int arg = QUERN_ARG_LENGTHS; arg <= QUERN_ARG_STARTS; arg++)
        if (args->of[arg].type && args->of[arg].type != QUERN_I32)
            return qn_error_set(
                QUERN_EINVAL, "%s.type is %s: a route makes i32",
                qn_api_name(arg), qn_type_name(args->of[arg].type));
    return QUERN_OK;
}

static int give_sizes(const struct quern_plan *plan,
                      const struct quern_args *args, union qn_given *given)
{
    struct sizes s = {NULL, NULL, QUERN_I32};
    int code;

    if (plan->rows < 0 && args->host_sizes)
        return qn_error_set(QUERN_EINVAL,
                            "host_sizes is not NULL: groups of this line have "
                            "equal sizes");
    if (plan->line.kind >= QN_LINE_ROUTE)
        return check_made(args);
    if (plan->rows < 0)
        return QUERN_OK;
    code = find_sizes(args, &s);
    if (code)
        return code;
    if (plan->line.kind == QN_LINE_MLP) {
        given->mlp.first_dims = s.lengths;
        given->mlp.offsets = s.starts;
        given->mlp.sizes_type = s.type;
        given->mlp.host_sizes = args->host_sizes;
    } else if (plan->line.kind == QN_LINE_CAST) {
        given->cast.first_dims = s.lengths;
        given->cast.offsets = s.starts;
        given->cast.sizes_type = s.type;
        given->cast.host_sizes = args->host_sizes;
    } else {
        given->product.host_sizes = args->host_sizes;
        give_product_sizes(plan, &s, &given->product);
    }
    return QUERN_OK;
}

/* --------------------------------------------------------------------- all */

/* A limit of infinity is none. */
static int check_limits(const struct qn_line *line,
                        const struct quern_args *args)
{
    const int activation = qn_api_has_mlp(line->kind) ? line->of.mlp.activation
                           : line->kind == QN_LINE_CAST
                               ? line->of.cast.activation
                               : line->of.product.activation;

    if (activation != QUERN_CLAMPED_SWIGLU)
        return QUERN_OK;
    if (!(args->limit >= 0))
        return qn_error_set(QUERN_EINVAL,
                            "args.limit is %g: 0 or more is expected",
                            (double)args->limit);
    if (args->slope != args->slope || args->shift != args->shift)
        return qn_error_set(QUERN_EINVAL,
                            "args.slope is %g and args.shift %g: numbers are "
                            "expected",
                            (double)args->slope, (double)args->shift);
    return QUERN_OK;
}

/* Those of products are checked with their other arguments. */
static int check_scalars(const struct quern_plan *plan,
                         const struct quern_args *args)
{
    if (plan->line.kind == QN_LINE_PRODUCT || args->scalars == 0 ||
        args->scalars == 1)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "args.scalars is %d: 0 or 1 is expected, as only "
                        "products have alpha and beta",
                        args->scalars);
}

static int give_scalars(const struct quern_plan *plan,
                        const struct quern_args *args, union qn_given *given)
{
    float *to = plan->line.kind == QN_LINE_ROUTE  ? NULL
                : qn_api_has_mlp(plan->line.kind) ? &given->mlp.limit
                : plan->line.kind == QN_LINE_CAST ? &given->cast.limit
                                                  : &given->product.limit;

    if (!to)
        return QUERN_OK;
    to[0] = args->limit;
    to[1] = args->slope;
    to[2] = args->shift;
    if (plan->line.kind == QN_LINE_PRODUCT)
        given->product.scalars = args->scalars;
    return check_limits(&plan->line, args);
}

/* The rows of this run, -1 for all of the line's; QUERN_EINVAL. */
static int find_rows(const struct quern_plan *plan,
                     const struct quern_args *args, int64_t *rows)
{
    *rows = args->rows == plan->rows ? -1 : args->rows;
    if (*rows < -1 || (*rows >= 0 && (plan->rows < 0 || *rows > plan->rows)))
        return qn_error_set(
            QUERN_EINVAL, "args.rows is %lld: %s%lld is expected",
            (long long)args->rows, plan->rows < 0 ? "" : "-1 or 0 to ",
            (long long)(plan->rows < 0 ? -1 : plan->rows));
    if (args->rows == -1 && plan->rounded)
        return qn_error_set(QUERN_EINVAL,
                            "args.rows is -1: a plan of quern_plan_get, whose "
                            "rows are rounded up, needs those of the run");
    return QUERN_OK;
}

static int phases_of(const struct quern_plan *plan,
                     const struct quern_args *args, int *phases)
{
    const int mlp = qn_api_has_mlp(plan->line.kind);

    if (args->phase < 0 || args->phase >= (mlp ? QUERN_PHASES : 1))
        return qn_error_set(QUERN_EINVAL, "args.phase is %d: %s is expected",
                            args->phase,
                            mlp ? "a value of enum quern_phase" : "0");
    *phases = 1 << args->phase;
    if (*phases & qn_api_phases(&plan->line))
        return QUERN_OK;
    return qn_mlp_refuse(&plan->line.of.mlp, args->phase);
}

int qn_api_given(const struct quern_plan *plan, const struct quern_args *args,
                 union qn_given *given)
{
    static const size_t sizes[QN_LINE_KINDS] = {
        [QN_LINE_PRODUCT] = sizeof given->product,
        [QN_LINE_CAST] = sizeof given->cast,
        [QN_LINE_MLP] = sizeof given->mlp,
        [QN_LINE_MOE] = sizeof given->mlp,
        [QN_LINE_ROUTE] = sizeof given->route};
    int64_t rows = -1;
    int phases = 0, code;

    code = qn_api_size("args", args->size, sizeof *args, "QUERN_ARGS_INIT");
    if (!code)
        code = phases_of(plan, args, &phases);
    if (!code)
        code = find_rows(plan, args, &rows);
    if (!code)
        code = check_scalars(plan, args);
    if (!code)
        code = check_unknown(plan, args);
    if (code)
        return code;
    memcpy(given, &plan->needs, sizes[plan->line.kind]);
    if (qn_api_has_mlp(plan->line.kind) && rows >= 0)
        given->mlp.rows = rows;
    if (plan->line.kind == QN_LINE_ROUTE && rows >= 0)
        given->route.tokens = rows;
    for (int i = 0; i < plan->count && !code; i++) {
        const struct qn_place *place = &plan->places[i];

        if ((rows >= 0 && place->has_rows) ||
            !give_plain(place, &args->of[place->arg], given))
            code = give_operand(plan, i, args, phases, rows, given);
    }
    if (!code && qn_api_has_mlp(plan->line.kind))
        code = check_gradients(args);
    if (!code)
        code = give_sizes(plan, args, given);
    return code ? code : give_scalars(plan, args, given);
}

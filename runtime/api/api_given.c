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

static int check_strides(const struct quern_operand *o,
                         const struct quern_buffer *b)
{
    if ((b->stride || b->group_stride) && !o->strided)
        return qn_error_set(
            QUERN_EINVAL,
            "%s.%s is %lld: this operand is packed, 0 is "
            "expected",
            o->name, b->stride ? "stride" : "group_stride",
            (long long)(b->stride ? b->stride : b->group_stride));
    if (b->stride < 0 || b->stride > INT32_MAX)
        return qn_error_set(QUERN_EINVAL,
                            "%s.stride is %lld: 0 to %d elements are expected",
                            o->name, (long long)b->stride, INT32_MAX);
    if (b->group_stride < 0)
        return qn_error_set(QUERN_EINVAL,
                            "%s.group_stride is %lld: at least 0 is expected",
                            o->name, (long long)b->group_stride);
    return QUERN_OK;
}

static int give_tensor(const struct quern_operand *o,
                       const struct quern_buffer *b, int64_t rows,
                       struct qn_tensor *t)
{
    int64_t bytes;
    int code = check_strides(o, b);

    if (code)
        return code;
    t->data = b->data;
    t->pointers = b->pointers;
    if (rows >= 0)
        for (int i = 0; i < t->ndim; i++)
            t->shape[i] = quern_extent(&o->shape[i], rows);
    if (!o->strided) {
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

/* Rules of every operand, by its row of the table. */
static int check(const struct quern_operand *o, const struct quern_buffer *b,
                 int phases, int64_t rows)
{
    const int used = (o->read | o->written) & phases;

    if (b->pointers && !o->pointers)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: this plan takes it in "
                            "one buffer",
                            o->name);
    if (!b->data && !b->pointers && used && !(o->optional & used) &&
        quern_extent(&o->bytes, rows < 0 ? 0 : rows) > 0)
        return qn_error_set(QUERN_EINVAL, "%s is NULL: the plan needs it",
                            o->name);
    if ((uintptr_t)b->data % o->alignment)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %zu", o->name,
                            b->data, o->alignment);
    return QUERN_OK;
}

/* Nothing that the plan would ignore. */
static int check_unknown(const struct quern_plan *plan,
                         const struct quern_args *args)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++)
        if (!plan->known[i] && (args->of[i].data || args->of[i].pointers))
            return qn_error_set(QUERN_EINVAL,
                                "%s is not NULL: the plan has no such operand",
                                qn_api_name(i));
    return QUERN_OK;
}

/* ------------------------------------------------------------------- sizes */

struct sizes {
    const void *lengths, *starts;
    int type;
};

static int find_sizes(const struct quern_args *args, struct sizes *s)
{
    const struct quern_buffer *lengths = &args->of[QUERN_ARG_LENGTHS],
                              *starts = &args->of[QUERN_ARG_STARTS],
                              *ends = &args->of[QUERN_ARG_ENDS];
    const struct quern_buffer *any = lengths->data  ? lengths
                                     : starts->data ? starts
                                                    : ends;

    if (ends->data && (lengths->data || starts->data))
        return qn_error_set(QUERN_EINVAL, "ends and %s are both given",
                            lengths->data ? "lengths" : "starts");
    if (lengths->data && starts->data && lengths->type != starts->type)
        return qn_error_set(QUERN_EINVAL,
                            "lengths.type and starts.type differ");
    s->type = any->type ? any->type : QUERN_I32;
    if (s->type != QUERN_I32 && s->type != QUERN_I64)
        return qn_error_set(QUERN_EINVAL,
                            "%s.type is %s: i32 or i64 is expected",
                            any == lengths  ? "lengths"
                            : any == starts ? "starts"
                                            : "ends",
                            qn_type_name(s->type));
    s->lengths = lengths->data;
    s->starts = starts->data ? starts->data : ends->data;
    if (ends->data)
        s->type |= QN_SIZES_ENDS;
    return QUERN_OK;
}

/* Products have them in the first of A, B and D that is ragged. */
static void give_product_sizes(const struct quern_plan *plan,
                               const struct sizes *s, struct qn_args *args)
{
    static const int roles[] = {QN_ROLE_A, QN_ROLE_B, QN_ROLE_D};

    for (int i = 0; i < 3; i++) {
        const struct qn_geometry *g = &plan->of.product->operands[roles[i]];
        struct qn_tensor *t = i == 0 ? &args->a : i == 1 ? &args->b : &args->d;

        if (g->grouped)
            continue;
        t->first_dims = g->inner_ragged ? NULL : s->lengths;
        t->last_dims = g->inner_ragged ? s->lengths : NULL;
        t->offsets = s->starts;
        t->sizes_type = s->type;
        return;
    }
}

static int give_sizes(const struct quern_plan *plan,
                      const struct quern_args *args, union qn_given *given)
{
    struct sizes s = {NULL, NULL, QUERN_I32};
    int code;

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

static void give_scalars(const struct quern_plan *plan,
                         const struct quern_args *args, union qn_given *given)
{
    float *to = plan->line.kind == QN_LINE_MLP    ? &given->mlp.limit
                : plan->line.kind == QN_LINE_CAST ? &given->cast.limit
                                                  : &given->product.limit;

    to[0] = args->limit;
    to[1] = args->slope;
    to[2] = args->shift;
    if (plan->line.kind == QN_LINE_PRODUCT)
        given->product.scalars = args->scalars;
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
    return QUERN_OK;
}

static int phases_of(const struct quern_plan *plan,
                     const struct quern_args *args, int *phases)
{
    const int mlp = plan->line.kind == QN_LINE_MLP;

    if (args->phase < 0 || args->phase >= (mlp ? QUERN_PHASES : 1))
        return qn_error_set(QUERN_EINVAL, "args.phase is %d: %s is expected",
                            args->phase,
                            mlp ? "a value of enum quern_phase" : "0");
    *phases = 1 << args->phase;
    if (*phases & qn_api_phases(&plan->line))
        return QUERN_OK;
    return qn_mlp_refuse(&plan->line.of.mlp, args->phase == QUERN_PHASE_BACKWARD
                                                 ? QN_MLP_BACKWARD
                                                 : QN_MLP_WGRAD);
}

static const struct qn_slot *slot_of(int arg)
{
    for (int i = 0; i < qn_api_slot_count; i++)
        if (qn_api_slots[i].arg == arg)
            return &qn_api_slots[i];
    return NULL;
}

int qn_api_given(const struct quern_plan *plan, const struct quern_args *args,
                 union qn_given *given)
{
    int64_t rows = -1;
    int phases = 0, code;

    code = qn_api_size("args", args->size, sizeof *args, "QUERN_ARGS_INIT");
    if (!code)
        code = phases_of(plan, args, &phases);
    if (!code)
        code = find_rows(plan, args, &rows);
    if (!code)
        code = check_unknown(plan, args);
    if (code)
        return code;
    if (plan->line.kind == QN_LINE_MLP) {
        given->mlp = plan->needs.mlp.args;
        if (rows >= 0)
            given->mlp.rows = rows;
    } else if (plan->line.kind == QN_LINE_CAST)
        given->cast = plan->needs.cast.args;
    else
        given->product = plan->needs.product.args;
    for (int i = 0; i < plan->count && !code; i++) {
        const struct quern_operand *o = &plan->operands[i];
        const struct quern_buffer *b = &args->of[o->arg];
        const struct qn_slot *slot = slot_of(o->arg);

        code = check(o, b, phases, rows < 0 ? plan->rows : rows);
        if (!code && slot)
            code = give(plan, slot, o, b, rows, given);
    }
    if (!code)
        code = give_sizes(plan, args, given);
    give_scalars(plan, args, given);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_args.c: the rules on the arguments of a phase that a line's table of
** operands (quern_plan_operands) does not say; it has been obeyed. Steps find
** nothing to refuse after it: a phase is queued as a whole or not at all.
*/
#include "mlp/mlp_plan.h"
#include "base/error.h"
#include "base/region.h"
#include "base/sizes_type.h"
#include "base/types.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <stddef.h>
#include <string.h>

/* Who uses a tensor, as bits of phases. */
enum {
    WEIGHTS = 1 << QUERN_PHASE_WEIGHTS,
    FORWARD = 1 << QUERN_PHASE_FORWARD,
    BACKWARD = 1 << QUERN_PHASE_BACKWARD,
    WGRAD = 1 << QUERN_PHASE_WGRAD
};

/* The kind: some phases do not read values that the recipe scales; quantized
   tensors are those of scaled tensors. */
enum kind { NUMBERS, COPY };

static const struct row {
    const char *name, *sf, *global, *pointers;
    size_t offset;
    int tensor; /* whose scaling decides */
    enum kind kind;
    int scaled, plain; /* phases that need it, if it is scaled and if not */
    int optional;      /* phases that do without */
    int written;       /* of copies by those who make them */
    int tokens;        /* rows are of groups, and may have gaps */
    int again;         /* backward needs it, too, if it computes pre again */
} rows[] = {
#define AT(member, name)                                                       \
    name, name ".sf", name ".global", name ".pointers",                        \
        offsetof(struct qn_mlp_args, member)
    {AT(x, "x"), QUERN_MLP_X, NUMBERS, FORWARD, FORWARD | WGRAD, 0, 0, 1, 1},
    {AT(y, "y"), QUERN_MLP_X, NUMBERS, FORWARD, FORWARD, 0, 1, 1, 0},
    {AT(dy, "dy"), QUERN_MLP_DY, NUMBERS, BACKWARD, BACKWARD | WGRAD, 0, 0, 1,
     0},
    {AT(dx, "dx"), QUERN_MLP_DY, NUMBERS, BACKWARD, BACKWARD, BACKWARD, 1, 1,
     0},
    {AT(w1, "w1"), QUERN_MLP_W1, NUMBERS, WEIGHTS, FORWARD | BACKWARD, 0, 0, 0,
     0},
    {AT(w2, "w2"), QUERN_MLP_W2, NUMBERS, WEIGHTS, FORWARD | BACKWARD, 0, 0, 0,
     0},
    {AT(w1_row, "w1_rowwise"), QUERN_MLP_W1, COPY, WEIGHTS | FORWARD, 0,
     WEIGHTS, 1, 0, 1},
    {AT(w2_row, "w2_rowwise"), QUERN_MLP_W2, COPY, WEIGHTS | FORWARD, 0,
     WEIGHTS, 1, 0, 0},
    {AT(w1_column, "w1_columnwise"), QUERN_MLP_W1, COPY, WEIGHTS | BACKWARD, 0,
     WEIGHTS, 1, 0, 0},
    {AT(w2_column, "w2_columnwise"), QUERN_MLP_W2, COPY, WEIGHTS | BACKWARD, 0,
     WEIGHTS, 1, 0, 0},
    {AT(dw1, "dw1"), QUERN_MLP_W1, NUMBERS, WGRAD, WGRAD, WGRAD, 1, 0, 0},
    {AT(dw2, "dw2"), QUERN_MLP_W2, NUMBERS, WGRAD, WGRAD, WGRAD, 1, 0, 0},
#undef AT
};

/* The word of pointers= that lets the matrices be given by their addresses; 0:
   there is none. */
static int word_of(const struct row *row)
{
    if (row->kind == COPY || row->tokens)
        return QUERN_MLP_ONE_BUFFER;
    return row->written ? QUERN_MLP_DW : QUERN_MLP_W;
}

/* Rows with gaps begin where any kernel can copy them from. */
static int check_stride(const struct row *row, const struct qn_tensor *given,
                        const struct qn_tensor *need)
{
    const int64_t stride = given->stride;

    if (!row->tokens || stride == need->shape[1] ||
        stride * qn_type_bits(need->type) % (8 * QN_ALIGNMENT) == 0)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s.stride is %lld elements of %s: rows that are not "
                        "packed must start at multiples of %d bytes",
                        row->name, (long long)stride, qn_type_name(need->type),
                        QN_ALIGNMENT);
}

/* A tensor that the table leaves to the caller may be needed with others. */
static int check_tensor(const struct row *row, const struct qn_tensor *given,
                        const struct qn_tensor *need)
{
    if (need->bytes && !given->data && !given->pointers)
        return qn_error_set(QUERN_EINVAL, "%s is NULL: the plan needs it",
                            row->name);
    return check_stride(row, given, need);
}

static const struct qn_tensor *tensor_at(const struct qn_mlp_args *args,
                                         const struct row *row)
{
    return (const void *)((const char *)args + row->offset);
}

/* Tokens, which the layer has checked. */
static int is_tokens(const struct qn_mlp_args *args,
                     const struct qn_tensor *given)
{
    return (args->gather_x && given == &args->x) ||
           (args->gather_dy && given == &args->dy);
}

/* Which of these phases need it; if there is no backward, or it reads packed
   weights, none needs columnwise tensors. */
static int phases_of(const struct qn_mlp_plan *plan, const struct row *row,
                     int phases)
{
    const int scaled = qn_mlp_scaled(plan->recipe, row->tensor);
    const int again =
        plan->mlp.recompute && row->again && scaled == (row->kind == COPY);

    const int copy = row->kind == COPY, first = row->scaled & FORWARD;
    const int packed = copy && qn_mlp_packed(plan->recipe);

    if ((plan->mlp.forward_only && copy && !first) || (packed && !first))
        return 0;
    if (plan->mlp.forward_only)
        phases &= WEIGHTS | FORWARD;
    return phases & ((scaled ? row->scaled : row->plain) |
                     (again || packed ? BACKWARD : 0));
}

/* No tensor of weights is wanted, so the values are not read. */
static int is_idle(const struct qn_mlp_args *args, const struct row *row,
                   int phase)
{
    if (phase != QUERN_PHASE_WEIGHTS || row->kind != NUMBERS)
        return 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].kind == COPY && rows[i].tensor == row->tensor &&
            tensor_at(args, &rows[i])->data)
            return 0;
    return 1;
}

/* All that the phase uses. */
static int check_tensors(const struct qn_mlp_plan *plan,
                         const struct qn_mlp_args *args, int phase)
{
    const int bit = 1 << phase;
    int code = QUERN_OK;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !code; i++) {
        const struct row *row = &rows[i];
        const struct qn_tensor *given = tensor_at(args, row);

        if (!phases_of(plan, row, bit) || is_idle(args, row, phase) ||
            is_tokens(args, given) ||
            (row->optional & bit && !given->data && !given->pointers))
            continue;
        code = check_tensor(row, given, tensor_at(&plan->need.args, row));
    }
    return code;
}

/* ----------------------------------------------------------------- overlap */

enum { ROWS = sizeof rows / sizeof rows[0], OTHERS = 15, FIELDS = 4 };

/* Tensors that each phase uses. */
struct list {
    struct qn_region at[QN_MLP_LAYER_REGIONS + OTHERS + ROWS * FIELDS];
    int count, phases;
};

static void add(struct list *l, int phases, const char *name, const void *data,
                size_t bytes, int written)
{
    if (phases & l->phases && data && bytes)
        l->at[l->count++] = (struct qn_region){name, data, bytes, written, 0};
}

/* A tensor and its scales. The rowwise and the columnwise tensor of the same
   weights may share these: those of more than a block are the same. */
static void list_tensor(const struct qn_mlp_plan *plan,
                        const struct qn_mlp_args *args, const struct row *row,
                        struct list *l)
{
    const struct qn_tensor *given = tensor_at(args, row);
    const struct qn_tensor *need = tensor_at(&plan->need.args, row);
    const int written =
        row->written && (row->kind != COPY || l->phases & WEIGHTS);
    const int lasting = !row->written && !row->tokens; /* w1 and w2 */
    const struct qn_scaling *s = &plan->recipe->scaling[QN_W];
    const int first = l->count;

    if (is_tokens(args, given) ||
        (!lasting && !phases_of(plan, row, l->phases)))
        return;
    add(l, -1, row->pointers, given->pointers,
        (size_t)plan->mlp.groups * sizeof *given->pointers, 0);
    if (!given->data)
        return;
    add(l, -1, row->name, given->data, given->bytes, written);
    if (plan->layer && row->tokens && l->count > first)
        l->at[l->count - 1].alike = 1 + row->tensor;
    if (row->kind != COPY)
        return;
    add(l, -1, row->sf, given->sf, need->sf_bytes, written);
    add(l, -1, row->global, given->global, need->global_bytes, written);
    for (int i = first + 1; i < l->count; i++)
        if (i - first > 1 ? !s->hadamard : qn_quantize_same_sf(s))
            l->at[i].alike = (i - first) * QUERN_MLP_TENSORS + row->tensor;
}

/* Memory of an MLP that no layer has elsewhere. */
static void list_own(const struct qn_mlp_plan *plan,
                     const struct qn_mlp_args *args, struct list *l)
{
    const struct qn_mlp_description *need = &plan->need;
    const size_t entry = qn_sizes_entry(args->sizes_type);
    const size_t groups = (size_t)plan->mlp.groups, word = sizeof(float);
    const size_t tokens = plan->mlp.probability ? (size_t)plan->mlp.m : 0;
    const int sizes = FORWARD | BACKWARD | WGRAD;

    add(l, -1, "workspace", args->workspace, need->workspace_bytes, 1);
    add(l, sizes, "saved", args->saved, need->saved_bytes, 1);
    add(l, BACKWARD | WGRAD, "pending", args->pending, need->pending_bytes, 1);
    add(l, sizes, "lengths", args->first_dims, groups * entry, 0);
    add(l, sizes, qn_sizes_operand(args->sizes_type), args->offsets,
        qn_sizes_count(args->sizes_type, plan->mlp.groups) * entry, 0);
    add(l, sizes, "host_sizes", args->host_sizes, groups * sizeof(int64_t), 0);
    add(l, FORWARD | BACKWARD, "prob", args->probability, tokens * word, 0);
    add(l, BACKWARD, "dprob", args->dprob, tokens * word, 1);
}

/* A layer passes these on as they are. */
static void list_passed(const struct qn_mlp_plan *plan,
                        const struct qn_mlp_args *args, struct list *l)
{
    const struct qn_mlp_description *need = &plan->need;
    const size_t groups = (size_t)plan->mlp.groups, word = sizeof(float);
    const size_t b1 = groups * (size_t)qn_mlp_operands(&plan->mlp) * word;
    const size_t b2 = groups * (size_t)plan->mlp.hidden * word;
    const size_t slots = (size_t)need->history;
    const int casts = WEIGHTS | FORWARD | BACKWARD;

    add(l, -1, "b1", args->b1, b1, 0);
    add(l, -1, "b2", args->b2, b2, 0);
    add(l, BACKWARD, "db1", args->db1, b1, 1);
    add(l, BACKWARD, "db2", args->db2, b2, 1);
    add(l, casts, "scale", args->scale,
        slots ? QUERN_MLP_TENSORS * 2 * word : 0, 0);
    add(l, casts, "history", args->history, slots * QUERN_MLP_TENSORS * word,
        1);
    add(l, casts, "random", args->random,
        need->random ? QUERN_MLP_TENSORS * 2 * sizeof(uint64_t) : 0, 0);
}

/* The host backend reads the addresses of matrices, so they are checked. */
static int check_matrices(const struct qn_mlp_plan *plan,
                          const struct qn_mlp_args *args, const struct list *l)
{
    const int groups = plan->mlp.groups, weights = l->phases & WEIGHTS;
    struct qn_matrices list[ROWS];
    unsigned char used[QUERN_MAX_GROUPS];
    int count = 0;

    for (int i = 0; i < ROWS; i++) {
        const struct qn_tensor *t = tensor_at(args, &rows[i]);

        if (t->pointers && phases_of(plan, &rows[i], l->phases))
            list[count++] = (struct qn_matrices){
                .name = rows[i].name,
                .pointers = t->pointers,
                .bytes = tensor_at(&plan->need.args, &rows[i])->bytes /
                         (size_t)groups,
                .alignment = QN_ALIGNMENT,
                .written = rows[i].written,
                .all = rows[i].written || weights};
    }
    if (plan->layer)
        memset(used, 1, sizeof used);
    else if (!weights && args->host_sizes)
        qn_sizes_rows(args->host_sizes, NULL, QUERN_I64, groups, used);
    else if (!weights)
        qn_sizes_rows(args->first_dims, args->offsets, args->sizes_type, groups,
                      used);
    return qn_region_matrices(list, count, groups, used, l->at, l->count);
}

/* All that a layer passes on, and if `tokens` tensors of tokens, next to the
   listed regions: an output must not overlap anything else that the same call
   uses, nor the layer's own weights and biases. Tensors of other phases may be
   gone. */
static int check_overlap(const struct qn_mlp_plan *plan,
                         const struct qn_mlp_args *args, struct list *l,
                         int tokens)
{
    int code;

    list_passed(plan, args, l);
    for (int i = 0; i < ROWS; i++)
        if (tokens || !rows[i].tokens)
            list_tensor(plan, args, &rows[i], l);
    code = qn_region_check(l->at, l->count);
    return code || plan->launches[QN_MLP_Y].product->driver
               ? code
               : check_matrices(plan, args, l);
}

/* From one phase to another, as bits. */
static int phases_from(int first, int last)
{
    return (2 << last) - (1 << first);
}

int qn_mlp_args_layer(const struct qn_mlp_plan *plan,
                      const struct qn_mlp_args *args, int first, int last,
                      const struct qn_region *regions, int count)
{
    struct list l;

    memcpy(l.at, regions, (size_t)count * sizeof *regions);
    l.count = count;
    l.phases = phases_from(first, last);
    return check_overlap(plan, args, &l, 0);
}

/* --------------------------------------------------------------------- all */

int qn_mlp_makes_dw(const struct qn_mlp_args *args)
{
    const struct qn_tensor *w1 = &args->dw1, *w2 = &args->dw2;

    return w1->data || w1->pointers || w2->data || w2->pointers;
}

/* Backward may leave the gradients of the weights to a later call. */
static int check_wanted(const struct qn_mlp_args *args, int first)
{
    if (first != QUERN_PHASE_WGRAD || qn_mlp_makes_dw(args))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "dw1 and dw2 are NULL: wgrad has nothing "
                                      "to compute");
}

int qn_mlp_args(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
                int first, int last)
{
    int code = qn_mlp_refuse(&plan->mlp, first);
    struct list l;

    if (!code)
        code = check_wanted(args, first);
    for (int phase = first; phase <= last && !code; phase++)
        code = check_tensors(plan, args, phase);
    if (!code && first != QUERN_PHASE_WEIGHTS && args->host_sizes)
        code = qn_host_size_rows(args->host_sizes, plan->mlp.sizes,
                                 plan->mlp.groups, plan->mlp.m);
    if (code)
        return code;
    l.count = 0;
    l.phases = phases_from(first, last);
    list_own(plan, args, &l);
    return check_overlap(plan, args, &l, 1);
}

int qn_mlp_args_use(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                    size_t offset, struct qn_mlp_use *use)
{
    const struct qn_mlp_plan plan = {.mlp = *mlp, .recipe = recipe};

    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        const int phases =
            row->offset == offset ? phases_of(&plan, row, -1) : 0;

        if (row->offset != offset)
            continue;
        use->needed = phases;
        use->pointers = word_of(row);
        use->optional = phases & row->optional;
        use->written = row->kind == COPY ? phases & WEIGHTS
                       : row->written    ? phases
                                         : 0;
        if (row->kind == COPY)
            use->optional |= use->written;
        else if (phases & WEIGHTS)
            use->optional |= WEIGHTS;
        return 1;
    }
    return 0;
}

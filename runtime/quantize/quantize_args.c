/* SPDX-License-Identifier: Apache-2.0 */
/*
** quantize_args.c: the rules on the arguments of a run that a line's table of
** operands (quern_plan_operands) does not say; it has been obeyed.
*/
#include "quantize/quantize_plan.h"
#include "base/error.h"
#include "base/region.h"
#include "base/sizes_type.h"
#include "problem/host_sizes_rules.h"

enum { DATA, SF, GLOBAL, FIELDS };
enum { TENSORS = 5, OTHERS = 13 };

/* Else the rowwise tensor has unquantized values, and may be left out where
   only dbias is wanted. */
static int is_scaled(const struct qn_quantize_plan *plan)
{
    return qn_quantize_scaling(&plan->q, plan->recipe)->type != QUERN_TYPE_NONE;
}

/* A tensor and its scales. The rowwise and the columnwise tensor share scales
   of more than a block. Returns how many. */
static int list_tensor(const char *const names[FIELDS],
                       const struct qn_tensor *given,
                       const struct qn_tensor *need, const struct qn_scaling *s,
                       int written, struct qn_region list[FIELDS])
{
    if (!given->data)
        return 0;
    list[DATA] =
        (struct qn_region){names[DATA], given->data, given->bytes, written, 0};
    list[SF] = (struct qn_region){names[SF], given->sf, need->sf_bytes, written,
                                  qn_quantize_same_sf(s) ? SF : 0};
    list[GLOBAL] =
        (struct qn_region){names[GLOBAL], given->global, need->global_bytes,
                           written, s->hadamard ? 0 : GLOBAL};
    return FIELDS;
}

static int list_tensors(const struct qn_quantize_plan *plan,
                        const struct qn_quantize_args *args,
                        struct qn_region *list)
{
#define NAMES(x)                                                               \
    {                                                                          \
        x, x ".sf", x ".global"                                                \
    }
    const struct qn_quantize_args *need = &plan->need.args;
    const int work = plan->q.work;
    const struct {
        const char *names[FIELDS];
        const struct qn_tensor *given, *need;
        int written;
    } all[TENSORS] = {
        {NAMES("input"), &args->in, &need->in, 0},
        {NAMES("pre"), &args->saved, &need->saved, 0},
        {NAMES("rowwise"), &args->row, &need->row, work == QUERN_QUANTIZE},
        {NAMES("columnwise"), &args->column, &need->column,
         work <= QUERN_TRANSPOSE},
        {NAMES("output"), &args->out, &need->out, 1},
    };
#undef NAMES
    int count = 0;

    for (int i = 0; i < TENSORS; i++)
        count += list_tensor(all[i].names, all[i].given, all[i].need,
                             qn_quantize_scaling(&plan->q, plan->recipe),
                             all[i].written, list + count);
    return count;
}

/* An output must not overlap anything else. */
static int check_overlap(const struct qn_quantize_plan *plan,
                         const struct qn_quantize_args *args)
{
    const struct qn_quantization *q = &plan->q;
    const size_t entry = qn_sizes_entry(args->sizes_type);
    const size_t groups = (size_t)q->groups, word = sizeof(float);
    struct qn_region list[OTHERS + TENSORS * FIELDS] = {
        {"workspace", args->workspace, plan->need.workspace_bytes, 1, 0},
        {"dbias", args->dbias, groups * (size_t)q->k * word, 1, 0},
        {"dprob", args->dprob, (size_t)q->m * word, 1, 0},
        {"history", args->history, (size_t)plan->need.history * word, 1, 0},
        {"lengths", args->first_dims, groups * entry, 0, 0},
        {qn_sizes_operand(args->sizes_type), args->offsets,
         qn_sizes_count(args->sizes_type, q->groups) * entry, 0, 0},
        {"prob", args->probability, (size_t)q->m * word, 0, 0},
        {"random", args->random, 2 * sizeof(uint64_t), 0, 0},
        {"noop", args->noop, sizeof(int), 0, 0},
        {"bias", args->bias, groups * (size_t)q->k * word, 0, 0},
        {"scale", args->scale, 2 * word, q->work == QUERN_RESCALE, 0},
        {"host_sizes", args->host_sizes, groups * sizeof(int64_t), 0, 0},
        {"input.pointers", args->in.pointers, groups * sizeof(void *), 0, 0}};
    int regions = OTHERS;

    const struct qn_matrices in = {.name = "input",
                                   .pointers = args->in.pointers,
                                   .bytes = args->in.bytes / groups,
                                   .alignment = plan->need.args.in.alignment,
                                   .all = 1};
    int code;

    regions += list_tensors(plan, args, list + regions);
    code = qn_region_check(list, regions);
    return code || plan->driver || !in.pointers
               ? code
               : qn_region_matrices(&in, 1, q->groups, NULL, list, regions);
}

int qn_quantize_args(const struct qn_quantize_plan *plan,
                     const struct qn_quantize_args *args)
{
    const int sums = plan->q.dbias && !is_scaled(plan); /* are enough */

    if (plan->q.work == QUERN_QUANTIZE && !args->row.data &&
        !args->column.data && plan->q.m && !(sums && args->dbias))
        return qn_error_set(QUERN_EINVAL,
                            "rowwise and %s are NULL: there is nothing to make",
                            sums ? "dbias" : "columnwise");
    if (args->host_sizes && qn_host_size_rows(args->host_sizes, plan->q.sizes,
                                              plan->q.groups, plan->q.m))
        return QUERN_EINVAL;
    return check_overlap(plan, args);
}

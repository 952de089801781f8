/* SPDX-License-Identifier: Apache-2.0 */
/*
** queue.c: weight and bias gradients that wait.
**
** Entries are in one array, made with the queue, in the order of their puts;
** removal closes the gap. Each is a plan and the arguments of one run, by
** value: their arrays stay the caller's until the launch that reads it.
*/
#include "queue/queue.h"
#include "base/context.h"
#include "base/error.h"
#include "base/region.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/problem.h"
#include "product/args.h"
#include "product/plan.h"
#include "product/run.h"
#include "quantize/quantize_plan.h"

#include <stdlib.h>
#include <string.h>

/* Outputs first, then inputs. */
enum { REGIONS = 8 };

/* A product, or sums over the rows of each group. */
struct entry {
    const struct qn_plan *plan;          /* NULL: sums */
    const struct qn_quantize_plan *sums; /* NULL: a product */
    union {
        struct qn_args args;
        struct qn_quantize_args cast;
    };
    struct qn_region regions[REGIONS];
    int layer;
};

struct quern_queue {
    int capacity, count;
    struct entry *entries; /* [capacity], the oldest first */
};

/* ---------------------------------------------------------------- conflicts */

/* Matrices by address have no single base. `plan` fits the arguments. C counts
   if it is not D. */
static void fill_regions(struct entry *e, const struct qn_plan *plan)
{
    static const struct {
        const char *name;
        int role;
        enum { DATA, SF, GLOBAL } field;
    } list[REGIONS] = {
        {"d", QN_ROLE_D, DATA},          {"a", QN_ROLE_A, DATA},
        {"b", QN_ROLE_B, DATA},          {"c", QN_ROLE_C, DATA},
        {"a.sf", QN_ROLE_A, SF},         {"b.sf", QN_ROLE_B, SF},
        {"a.global", QN_ROLE_A, GLOBAL}, {"b.global", QN_ROLE_B, GLOBAL},
    };
    const struct qn_args *args = &e->args;
    const int apart =
        plan->problem.beta == QUERN_BETA_ANY && args->c.data != args->d.data;

    for (int i = 0; i < REGIONS; i++) {
        const int role = list[i].role;
        const struct qn_tensor *t = qn_args_tensor(args, role);
        struct qn_region *r = &e->regions[i];

        if (list[i].field == DATA && (role != QN_ROLE_C || apart))
            *r = qn_args_region(plan, args, role);
        else if (list[i].field == SF && plan->operands[role].sf.scaling)
            *r = (struct qn_region){.data = t->sf, .bytes = t->sf_bytes};
        else if (list[i].field == GLOBAL && plan->operands[role].sf.scaling)
            *r =
                (struct qn_region){.data = t->global, .bytes = t->global_bytes};
        r->name = list[i].name;
    }
}

/* A tensor of sums; those of weights do not exist. */
static struct qn_region rows_region(const char *name,
                                    const struct qn_tensor *given,
                                    const struct qn_tensor *need)
{
    const int64_t rows = need->shape[0], columns = need->shape[1];
    const int64_t stride = given->stride ? given->stride : columns;
    int64_t count = rows > 0 ? (rows - 1) * stride + columns : 0;

    return (struct qn_region){
        .name = name,
        .data = given->data,
        .bytes = (size_t)(count * qn_type_bits(need->type) / 8)};
}

static void fill_sum_regions(struct entry *e,
                             const struct qn_quantize_plan *fitted)
{
    const struct qn_quantize_args *args = &e->cast;
    const struct qn_quantize_args *need = &fitted->need.args;
    const struct qn_quantization *q = &fitted->q;
    const struct qn_region regions[REGIONS] = {
        {"dbias", args->dbias, (size_t)q->groups * (size_t)q->k * sizeof(float),
         1, 0},
        rows_region("input", &args->in, &need->in),
        rows_region("pre", &args->saved, &need->saved),
        {"prob", args->probability, (size_t)q->m * sizeof(float), 0, 0},
        {.name = ""}};

    memcpy(e->regions, regions, sizeof regions);
}

/* The same matrices, with any contents; or the same sums. */
static int same_output(const struct entry *x, const struct entry *y)
{
    if (x->sums || y->sums)
        return x->sums && y->sums && x->cast.dbias == y->cast.dbias;
    return x->args.d.data == y->args.d.data &&
           x->args.d.pointers == y->args.d.pointers;
}

/* Sums that wait stay as many, and are added to. */
static int check_sums(const struct entry *old, const struct entry *new)
{
    const struct qn_quantization *x = &old->sums->q, *y = &new->sums->q;

    if (x->groups != y->groups || x->k != y->k)
        return qn_error_set(QUERN_EINVAL,
                            "dbias has shape [%d, %lld], but pending work for "
                            "it has shape [%d, %lld]",
                            y->groups, (long long)y->k, x->groups,
                            (long long)x->k);
    if (y->dbias != QUERN_DBIAS_ADD)
        return qn_error_set(QUERN_EINVAL,
                            "dbias: the plan has dbias=1 and would overwrite "
                            "pending work; flush that first, or use dbias=add");
    return QUERN_OK;
}

/* An output keeps its form while products for it wait. */
static int check_form(const struct entry *old, const struct entry *new)
{
    const struct qn_tensor *a = &old->args.d, *b = &new->args.d;
    const struct qn_geometry *g = &old->plan->operands[QN_ROLE_D];
    const struct qn_geometry *h = &new->plan->operands[QN_ROLE_D];

    if (a->type != b->type)
        return qn_error_set(
            QUERN_EINVAL,
            "d.type is %s: pending products for these matrices have %s",
            qn_type_name(b->type), qn_type_name(a->type));
    if (g->groups != h->groups || g->rows != h->rows ||
        g->columns != h->columns)
        return qn_error_set(QUERN_EINVAL,
                            "d.shape is [%lld, %lld, %lld]: pending products "
                            "for these matrices have [%lld, %lld, %lld]",
                            (long long)h->groups, (long long)h->rows,
                            (long long)h->columns, (long long)g->groups,
                            (long long)g->rows, (long long)g->columns);
    if (qn_args_stride(a, g) != qn_args_stride(b, h) ||
        qn_args_group_stride(a, g) != qn_args_group_stride(b, h))
        return qn_error_set(QUERN_EINVAL,
                            "d.stride or d.group_stride differs from that of "
                            "pending products for these matrices");
    if (new->plan->problem.beta == QUERN_BETA_ZERO)
        return qn_error_set(
            QUERN_EINVAL,
            "d: the plan has beta=0 and would overwrite pending products "
            "for these matrices; flush them first, or accumulate");
    return QUERN_OK;
}

/* The queued work, for messages. */
static const char *kind_of(const struct entry *e)
{
    return e->sums ? "a bias gradient" : "a product";
}

/* One entry against another: one's outputs must not overlap the other's
   arrays. */
static int check_apart(const struct entry *old, const struct entry *new)
{
    const struct qn_region *x = old->regions, *y = new->regions;

    for (int i = 0; i < REGIONS; i++)
        for (int j = 0; j < REGIONS; j++)
            if ((i == 0 || j == 0) &&
                !(i == 0 && j == 0 && same_output(old, new)) &&
                qn_region_meets(&x[i], &y[j]))
                return qn_error_set(QUERN_EINVAL,
                                    "%s overlaps %s of %s that waits for layer "
                                    "%d",
                                    y[j].name, x[i].name, kind_of(old),
                                    old->layer);
    return QUERN_OK;
}

/* Against all that wait. */
static int check_conflicts(const struct quern_queue *queue,
                           const struct entry *new)
{
    int code = QUERN_OK;

    for (int i = 0; !code && i < queue->count; i++) {
        if (same_output(&queue->entries[i], new))
            code =
                (new->sums ? check_sums : check_form)(&queue->entries[i], new);
        if (!code)
            code = check_apart(&queue->entries[i], new);
    }
    return code;
}

/* -------------------------------------------------------------------- queue */

int quern_queue_create(struct quern_context *ctx, int capacity,
                       struct quern_queue **queue)
{
    if (!ctx || !queue)
        return qn_error_set(QUERN_EINVAL, "%s is NULL", !ctx ? "ctx" : "queue");
    *queue = NULL;
    if (capacity < 1 || capacity > QUERN_MAX_QUEUE)
        return qn_error_set(QUERN_EINVAL,
                            "capacity is %d: 1 to %d products may wait",
                            capacity, QUERN_MAX_QUEUE);
    *queue = calloc(1, sizeof **queue);
    if (*queue)
        (*queue)->entries = calloc((size_t)capacity, sizeof(struct entry));
    if (!*queue || !(*queue)->entries) {
        free(*queue);
        *queue = NULL;
        return qn_error_memory();
    }
    (*queue)->capacity = capacity;
    return QUERN_OK;
}

void quern_queue_destroy(struct quern_queue *queue)
{
    if (queue)
        free(queue->entries);
    free(queue);
}

static int matches(const struct entry *entry, int layer)
{
    return layer == QUERN_ALL_LAYERS || entry->layer == layer;
}

int quern_queue_count(const struct quern_queue *queue, int layer)
{
    int count = 0;

    for (int i = 0; queue && i < queue->count; i++)
        count += matches(&queue->entries[i], layer);
    return count;
}

/* Checks without the queue. Completes the entry. */
static int check_product(struct entry *new)
{
    const struct qn_plan *fitted;
    struct qn_plan room;
    int code;

    if (new->plan->problem.op != QUERN_WGRAD)
        return qn_error_set(QUERN_EINVAL,
                            "plan: its op is %s; a queue takes only wgrad",
                            qn_op_name(new->plan->problem.op));
    code = qn_context_process(new->plan->ctx, "plan");
    if (!code)
        code = qn_plan_fit(new->plan, &new->args, &room, &fitted);
    if (!code)
        code = qn_args_check(fitted, &new->args);
    if (!code)
        fill_regions(new, fitted);
    return code;
}

/* The same of sums, which make nothing else. */
static int check_dbias(struct entry *new)
{
    const struct qn_quantize_plan *plan = new->sums;
    const struct qn_quantize_args *args = &new->cast;
    const struct qn_quantize_plan *fitted;
    struct qn_quantize_plan room;
    int code;

    if (!plan->q.dbias || plan->q.dprob)
        return qn_error_set(QUERN_EINVAL,
                            "plan: a quantization with dbias=1 or dbias=add "
                            "and without dprob is expected");
    if (qn_quantize_scaling(&plan->q, plan->recipe)->type != QUERN_TYPE_NONE)
        return qn_error_set(
            QUERN_EINVAL,
            "plan: recipe %s makes dbias with its copies, "
            "only dbias without copies may wait: a recipe without "
            "scales makes that",
            plan->recipe->name);
    if (args->row.data)
        return qn_error_set(QUERN_EINVAL,
                            "rowwise is not NULL: a queue takes only dbias");
    code = qn_quantize_admit(plan, args, &room, &fitted);
    if (!code)
        fill_sum_regions(new, fitted);
    return code;
}

/* The kind of a new entry. */
static int put(struct quern_queue *queue, struct entry *new)
{
    int code;

    if (new->layer < 0)
        return qn_error_set(QUERN_EINVAL, "layer is %d: 0 or more is expected",
                            new->layer);
    code = (new->sums ? check_dbias : check_product)(new);
    if (!code && queue->count == queue->capacity)
        code = qn_error_set(QUERN_EFULL,
                            "queue: it is full with %d products; flush some",
                            queue->count);
    if (!code)
        code = check_conflicts(queue, new);
    if (!code)
        queue->entries[queue->count++] = *new;
    return code;
}

int qn_queue_put(struct quern_queue *queue, const struct qn_plan *plan,
                 const struct qn_args *args, int layer)
{
    struct entry new = {.plan = plan, .args = *args, .layer = layer};

    return put(queue, &new);
}

int qn_queue_put_all(struct quern_queue *queue,
                     const struct qn_plan *const *plans,
                     const struct qn_args *args, int count, int layer)
{
    const int before = queue->count;
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++)
        code = qn_queue_put(queue, plans[i], &args[i], layer);
    if (code)
        queue->count = before; /* the new entry is after all others */
    return code;
}

int qn_queue_put_dbias(struct quern_queue *queue,
                       const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, int layer)
{
    struct entry new = {.sums = plan, .cast = *args, .layer = layer};

    return put(queue, &new);
}

/* -------------------------------------------------------------------- flush */

/* Take an entry out; those after it move up. */
static void take_out(struct quern_queue *queue, int at)
{
    queue->count--;
    memmove(&queue->entries[at], &queue->entries[at + 1],
            (size_t)(queue->count - at) * sizeof queue->entries[0]);
}

/* A named layer without entries is one flushed twice, or never put. */
static int check_flush(const struct quern_queue *queue, int layer, int most)
{
    if (!queue)
        return qn_error_set(QUERN_EINVAL, "queue is NULL");
    if (layer < 0 && layer != QUERN_ALL_LAYERS)
        return qn_error_set(QUERN_EINVAL,
                            "layer is %d: 0 or more, or QUERN_ALL_LAYERS, is "
                            "expected",
                            layer);
    if (most < 0)
        return qn_error_set(QUERN_EINVAL,
                            "most is %d: 0 (all) or more is expected", most);
    if (layer != QUERN_ALL_LAYERS && !quern_queue_count(queue, layer))
        return qn_error_set(QUERN_EINVAL,
                            "layer %d has no pending work: it was flushed "
                            "already, or never put",
                            layer);
    return QUERN_OK;
}

/* The oldest entry that matches, from `at` on; -1 if there is none. */
static int find(const struct quern_queue *queue, int layer, int at)
{
    for (; at < queue->count; at++)
        if (matches(&queue->entries[at], layer))
            return at;
    return -1;
}

/* Rows as far apart: one map cuts those of all products. */
static int same_rows(const struct entry *x, const struct entry *y)
{
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_geometry *g = &x->plan->operands[role];

        if (!g->sf.scaling &&
            qn_args_stride(qn_args_tensor(&x->args, role), g) !=
                qn_args_stride(qn_args_tensor(&y->args, role),
                               &y->plan->operands[role]))
            return 0;
    }
    return 1;
}

/* May an entry for the same matrices join the launch that `first` begins? It
   must be one that adds, and nothing else. */
static int joins(const struct entry *first, const struct entry *e)
{
    return e->plan->problem.beta == QUERN_BETA_ONE &&
           !strcmp(first->plan->problem.recipe, e->plan->problem.recipe) &&
           qn_field_same(&qn_line_product, &first->plan->problem,
                         &e->plan->problem) &&
           e->plan->problem.k <= first->plan->problem.k &&
           e->plan->ctx == first->plan->ctx &&
           e->plan->backend == first->plan->backend &&
           e->args.alpha == first->args.alpha &&
           e->args.scalars == first->args.scalars &&
           e->args.noop == first->args.noop && same_rows(first, e);
}

/* Does it only add to its output's content? */
static int adds(const struct entry *e)
{
    if (e->sums)
        return e->sums->q.dbias == QUERN_DBIAS_ADD;
    return e->plan->problem.beta == QUERN_BETA_ONE &&
           (!e->args.c.data || e->args.c.data == e->args.d.data);
}

/* An older one of another layer that comes before the one at `place`, as they
   do not both just add; NULL if there is none. */
static const struct entry *blocker(const struct quern_queue *queue, int layer,
                                   int place)
{
    const struct entry *new = &queue->entries[place];

    for (const struct entry *old = queue->entries; old < new; old++)
        if (!matches(old, layer) && same_output(old, new) &&
            !(adds(old) && adds(new)))
            return old;
    return NULL;
}

static int check_order(const struct quern_queue *queue, int layer, int place)
{
    const struct entry *old = blocker(queue, layer, place);

    if (!old)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "layer is %d: %s for the same %s waits for layer %d, "
                        "was put before, and one of both does not just add to "
                        "it; flush that layer first, or all",
                        layer, kind_of(old), old->sums ? "dbias" : "d",
                        old->layer);
}

/* The oldest entry that matches, and of the `most` oldest those that join
   it: their indexes, in order. Returns how many; 0 if none matches. */
static int collect(const struct quern_queue *queue, int layer, int most,
                   int places[QUERN_MAX_MICROBATCHES])
{
    int at = find(queue, layer, 0), count = 0, microbatches;
    const struct entry *first = &queue->entries[at < 0 ? 0 : at];

    if (at < 0)
        return 0;
    microbatches = first->plan && first->plan->microbatches > 1
                       ? first->plan->microbatches
                       : 1;
    places[count++] = at;
    while (count < microbatches && --most > 0 &&
           (at = find(queue, layer, at + 1)) >= 0) {
        const struct entry *e = &queue->entries[at];

        if (!same_output(first, e))
            continue;
        if (!joins(first, e) || blocker(queue, layer, at))
            break; /* entries that add up stay in order */
        places[count++] = at;
    }
    return count;
}

/* One launch, or a single run. */
static int launch(const struct quern_queue *queue, const int *places, int count,
                  void *stream)
{
    const struct entry *first = &queue->entries[places[0]];
    const struct qn_args *args[QUERN_MAX_MICROBATCHES];

    if (first->sums)
        return qn_quantize_run(first->sums, &first->cast, stream);
    if (count == 1)
        return qn_run(first->plan, &first->args, stream);
    for (int i = 0; i < count; i++)
        args[i] = &queue->entries[places[i]].args;
    return qn_run_merged(first->plan, args, count, stream);
}

int quern_queue_flush(struct quern_queue *queue, int layer, int most,
                      struct CUstream_st *stream)
{
    int code = check_flush(queue, layer, most), places[QUERN_MAX_MICROBATCHES];
    int left = most, count;

    if (!most && !code)
        left = queue->count;
    while (!code && left > 0 &&
           (count = collect(queue, layer, left, places)) > 0) {
        code = check_order(queue, layer, places[0]);
        if (!code)
            code = launch(queue, places, count, stream);
        left -= count;
        while (!code && count > 0)
            take_out(queue, places[--count]);
    }
    return code;
}

int quern_queue_drop(struct quern_queue *queue, int layer)
{
    int code = check_flush(queue, layer, 0), at = 0;

    while (!code && (at = find(queue, layer, at)) >= 0)
        take_out(queue, at);
    return code;
}

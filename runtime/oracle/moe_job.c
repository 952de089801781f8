/* SPDX-License-Identifier: Apache-2.0 */
/* moe_job.c: a layer from unpermuted tokens with data, ready to run. */
#include "oracle/moe_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/scale.h"
#include "problem/sizes.h"

/* ------------------------------------------------------------------ routes */

static int64_t pairs_of(const struct qn_moe_job *j)
{
    return j->moe.mlp.m * j->moe.topk;
}

int qn_moe_job_group(const struct qn_moe_job *j, int64_t pair)
{
    const int64_t group = j->index[pair] - j->moe.first;

    return group >= 0 && group < j->moe.mlp.groups &&
                   pair < j->call.args.rows * j->moe.topk
               ? (int)group
               : -1;
}

int64_t qn_moe_job_sizes(const struct qn_moe_job *j, int64_t *sizes)
{
    int64_t rows = 0;

    memset(sizes, 0, (size_t)j->moe.mlp.groups * sizeof *sizes);
    for (int64_t i = 0; i < j->call.args.rows * j->moe.topk; i++) {
        const int group = qn_moe_job_group(j, i);

        if (group >= 0)
            sizes[group]++;
        rows += group >= 0;
    }
    return rows;
}

/* Deal the experts' rows to tokens, in an order of tokens that is drawn: pairs
   of one expert are dealt to tokens in turn. Rows that are left over are of
   experts on other ranks, or of none. */
static void deal(struct qn_moe_job *j, const int64_t *sizes, int64_t *order)
{
    const int64_t m = j->moe.mlp.m, pairs = pairs_of(j);
    struct qn_route route;
    int64_t at = 0;
    int others, group = 0;

    qn_moe_route(&j->moe, QUERN_ROUTE, &route);
    others = qn_route_experts(&route) - route.groups;
    for (int64_t left = sizes[0]; at < pairs; at++) {
        const int64_t pair = order[at % m] * j->moe.topk + at / m;

        while (group < route.groups && !left)
            left = ++group < route.groups ? sizes[group] : 0;
        if (group < route.groups) {
            j->index[pair] = route.first + group;
            left--;
        } else {
            j->index[pair] = others
                                 ? (route.first + route.groups + at % others) %
                                       qn_route_experts(&route)
                                 : -1;
        }
    }
}

static int draw(struct qn_moe_job *j, const struct qn_options *opt,
                const int64_t *given)
{
    const struct qn_mlp *mlp = &j->moe.mlp;
    struct qn_route route;
    int64_t sizes[QUERN_MAX_GROUPS], *order;
    uint64_t seed = opt->seed + 1;
    char why[512];

    qn_moe_route(&j->moe, QUERN_ROUTE, &route);
    if (given)
        memcpy(sizes, given, (size_t)mlp->groups * sizeof *given);
    else if (qn_sizes_draw(mlp->split, mlp->groups,
                           pairs_of(j) * route.groups /
                               qn_route_experts(&route),
                           opt->seed, sizes, why, sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    j->index = malloc((size_t)pairs_of(j) * sizeof *j->index + 1);
    order = malloc((size_t)mlp->m * sizeof *order + 1);
    if (j->index && order && mlp->m) {
        for (int64_t i = 0; i < mlp->m; i++) {
            const int64_t other =
                (int64_t)(qn_random_next(&seed) % (uint64_t)(i + 1));

            order[i] = order[other];
            order[other] = i;
        }
        deal(j, sizes, order);
    }
    free(order);
    return j->index ? QN_EXIT_OK : qn_message_code(opt, QUERN_ENOMEM, NULL);
}

/* --------------------------------------------------------------- addresses */

int64_t qn_moe_job_row(const struct qn_moe_job *j, int64_t token)
{
    const int64_t m = j->moe.mlp.m;

    if (!j->moe.scatter)
        return token;
    for (int64_t k = 0; k < j->moe.topk && token % 5 != 3; k++)
        if (qn_moe_job_group(j, token * j->moe.topk + k) >= 0)
            return (token + m / 2) % m;
    return -1;
}

/* Addresses of rows of the result in the order of qn_moe_job_row, if all
   tokens have rows. */
static void put_addresses(const struct qn_moe_job *j, int arg, uint64_t *to)
{
    const struct qn_mlp *mlp = &j->moe.mlp;
    const size_t row =
        (size_t)mlp->hidden * (size_t)qn_type_bits(mlp->type) / 8;
    const char *first =
        j->call
            .memory[arg == QUERN_ARG_Y_ADDRESSES ? QUERN_ARG_Y : QUERN_ARG_DX]
            .data;

    for (int64_t i = 0; i < mlp->m; i++)
        to[i] = i % 5 == 3
                    ? 0
                    : (uintptr_t)(first +
                                  (size_t)((i + mlp->m / 2) % mlp->m) * row);
}

/* y and dx, which are no operands where their tokens have addresses. */
static int make_results(struct qn_moe_job *j)
{
    static const int results[] = {QUERN_ARG_Y, QUERN_ARG_DX};
    const struct qn_mlp *mlp = &j->moe.mlp;
    const size_t bytes =
        (size_t)(mlp->m * mlp->hidden) * (size_t)qn_type_bits(mlp->type) / 8;
    int code = QUERN_OK;

    for (int i = 0; i < 2 && j->moe.scatter && !code; i++) {
        struct qn_memory *m = &j->call.memory[results[i]];

        if (i && mlp->forward_only)
            break;
        code = qn_memory_new(m, j->call.gpu, bytes);
        if (!code)
            code = qn_memory_clear(m, QN_MEMORY_POISON);
    }
    return code;
}

/* ---------------------------------------------------------------- contents */

/* Is it set before a run? The others are poison then. */
static int has_contents(const struct quern_operand *o)
{
    return o->read && o->arg != QUERN_ARG_SAVED &&
           o->arg != QUERN_ARG_PENDING &&
           (o->arg < QUERN_ARG_W1_ROWWISE ||
            o->arg > QUERN_ARG_W2_COLUMNWISE_GLOBAL);
}

static void put_index(const struct qn_moe_job *j, void *to)
{
    for (int64_t i = 0; i < pairs_of(j); i++)
        if (j->moe.index == QUERN_I64)
            ((int64_t *)to)[i] = j->index[i];
        else
            ((int32_t *)to)[i] = (int32_t)j->index[i];
}

/* Values that a layer has: every result is about 1. */
static int fill(void *job, const struct quern_operand *o, void *to,
                size_t bytes)
{
    const struct qn_moe_job *j = job;
    const struct qn_mlp *mlp = &j->moe.mlp;
    const double inputs =
        o->arg == QUERN_ARG_W1   ? (double)mlp->hidden
        : o->arg == QUERN_ARG_W2 ? (double)mlp->ffn
        : o->ndim == 2 && o->type == QUERN_F32 && o->arg != QUERN_ARG_X ? 4
                                                                        : 1;
    const uint64_t seed = 64 * j->seed + (uint64_t)o->arg;

    if (!has_contents(o))
        return QN_CALL_POISON;
    switch (o->arg) {
    case QUERN_ARG_INDEX:
        put_index(j, to);
        return QUERN_OK;
    case QUERN_ARG_Y_ADDRESSES:
    case QUERN_ARG_DX_ADDRESSES:
        put_addresses(j, o->arg, to);
        return QUERN_OK;
    case QUERN_ARG_RANDOM:
        for (size_t i = 0; i < bytes / 8; i++)
            ((uint64_t *)to)[i] = i % 2 ? 0 : seed + i;
        return QUERN_OK;
    case QUERN_ARG_PROB:
    case QUERN_ARG_SCALE:
    case QUERN_ARG_HISTORY:
        qn_layer_floats(j->recipe, &j->moe.mlp, o->arg, seed, to,
                        bytes / sizeof(float));
        return QUERN_OK;
    default:
        return qn_call_draw(&j->call, o, to, bytes, seed,
                            (float)(1 / sqrt(inputs)));
    }
}

int qn_moe_job_route(struct qn_moe_job *j)
{
    put_index(j, j->call.host[QUERN_ARG_INDEX]);
    return qn_call_put(&j->call, QUERN_ARG_INDEX);
}

/* ------------------------------------------------------------------- begin */

int qn_moe_job_begin(struct qn_moe_job *j, const struct qn_options *opt,
                     struct quern_context *ctx, const struct qn_moe *moe,
                     int backend, const int64_t *sizes)
{
    const struct quern_plan_options options = qn_call_options(opt, backend);
    const struct qn_call_data data = {.fill = fill, .user = j};
    struct qn_line line = {.kind = QN_LINE_MOE, .of.moe = *moe};
    int code, status;

    line.of.moe.mlp.pointers = 0; /* all matrices in one buffer */
    *j = (struct qn_moe_job){.moe = line.of.moe, .seed = opt->seed};
    j->recipe = qn_context_recipe(ctx, moe->mlp.recipe);
    status = draw(j, opt, sizes);
    if (status)
        return status;
    code = qn_call_plan(&j->call, ctx, &line, &options);
    j->call.alike = opt->alike || !qn_scale_blocks(j->recipe);
    j->call.args.rows = moe->mlp.m;
    if (!code)
        code = make_results(j);
    if (!code)
        code = qn_call_make(&j->call, &data);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

void qn_moe_job_free(struct qn_moe_job *j)
{
    qn_call_free(&j->call);
    free(j->index);
    j->index = NULL;
}

double qn_moe_job_flops(const struct qn_moe_job *j)
{
    int64_t sizes[QUERN_MAX_GROUPS];

    return qn_layer_flops(&j->moe.mlp, qn_moe_job_sizes(j, sizes));
}

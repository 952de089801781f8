/* SPDX-License-Identifier: Apache-2.0 */
/* route_job.c: a line about routes with data, ready to run. */
#include "oracle/route_job.h"

#include "base/random.h"

static int64_t pairs_of(const struct qn_route_job *j)
{
    return j->route.m * j->route.topk;
}

/* Experts of all ranks, or for one pair in eight none. */
static void draw_index(struct qn_route_job *j, void *to, uint64_t seed)
{
    const uint64_t experts = (uint64_t)qn_route_experts(&j->route);

    for (int64_t i = 0; i < pairs_of(j); i++) {
        const uint64_t drawn = qn_random_next(&seed);
        const int64_t expert =
            drawn % 8 == 3 ? -1 : (int64_t)((drawn >> 8) % experts);

        if (j->route.index == QUERN_I64)
            ((int64_t *)to)[i] = expert;
        else
            ((int32_t *)to)[i] = (int32_t)expert;
        j->rows += expert >= j->route.first &&
                   expert < j->route.first + j->route.groups;
    }
}

/* Rows in an order that is drawn: the first of them, as a route leaves none in
   between. */
static void draw_inverse(struct qn_route_job *j, int *to, uint64_t seed)
{
    const int64_t pairs = pairs_of(j);

    for (int64_t i = 0; i < pairs; i++) {
        const int64_t other =
            (int64_t)(qn_random_next(&seed) % (uint64_t)(i + 1));

        to[i] = to[other];
        to[other] = (int)i;
    }
    j->rows = pairs - pairs / 8;
    for (int64_t i = 0; i < pairs; i++)
        if (to[i] >= j->rows)
            to[i] = -1;
}

static int fill(void *job, const struct quern_operand *o, void *to,
                size_t bytes)
{
    struct qn_route_job *j = job;
    const uint64_t seed = 64 * j->seed + (uint64_t)o->arg;

    if (!o->read)
        return QN_CALL_POISON;
    if (o->arg == QUERN_ARG_INDEX)
        draw_index(j, to, seed);
    else if (o->arg == QUERN_ARG_INVERSE)
        draw_inverse(j, to, seed);
    else
        return qn_call_draw(&j->call, o, to, bytes, seed, 1);
    return QUERN_OK;
}

int qn_route_job_begin(struct qn_route_job *j, const struct qn_options *opt,
                       struct quern_context *ctx, const struct qn_route *route,
                       int backend)
{
    const struct quern_plan_options options = qn_call_options(opt, backend);
    const struct qn_line line = {.kind = QN_LINE_ROUTE, .of.route = *route};
    const struct qn_call_data data = {.fill = fill, .user = j};
    int code;

    *j = (struct qn_route_job){.route = *route, .seed = opt->seed};
    code = qn_call_plan(&j->call, ctx, &line, &options);
    j->call.alike = 1; /* nothing is scaled */
    if (!code)
        code = qn_call_make(&j->call, &data);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

/* Is it an operand of rows of experts, of which pairs may have none? */
static int is_rows(const struct qn_route_job *j, int arg)
{
    return arg == QUERN_ARG_GATHER || arg == QUERN_ARG_ROWS ||
           (arg == QUERN_ARG_OUTPUT && j->route.work == QUERN_PERMUTE) ||
           (arg == QUERN_ARG_INPUT && j->route.work == QUERN_COMBINE);
}

double qn_route_job_bytes(const struct qn_route_job *j)
{
    const double pairs = (double)pairs_of(j);
    const double share = pairs > 0 ? (double)j->rows / pairs : 0;
    double bytes = 0;

    for (int arg = 0; arg < QUERN_ARGS_COUNT; arg++)
        if (arg != QUERN_ARG_WORKSPACE)
            bytes += (double)j->call.memory[arg].bytes *
                     (is_rows(j, arg) ? share : 1);
    return bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** route_plan.c: the launches of lines about routes. One kernel for each serves
** all recipes and types: it is that of values without scales.
*/
#include "route/route_plan.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/evidence.h"
#include "choose/session.h"
#include "problem/dequantize_rules.h"
#include "quantize/quantize_plan.h"

#include <stdlib.h>
#include <string.h>

/* The launches of each kind of line, in order. */
static const struct work {
    int count, ops[2];
    const char *does[2];
} works[] = {
    [QUERN_ROUTE] = {2,
                     {QN_ROUTE_COUNT, QN_ROUTE_SORT},
                     {"rows of each expert, in chunks of pairs",
                      "the order of pairs, and its inverse"}},
    [QUERN_PERMUTE] = {1, {QN_PERMUTE_ROWS}, {"tokens to rows of experts"}},
    [QUERN_COMBINE] = {1, {QN_COMBINE_ROWS}, {"rows to sums of tokens"}},
};

/* Those of a route of few pairs, on a GPU. */
static const struct work moving = {
    1, {QN_ROUTE_PERMUTE}, {"the order of a few pairs, and tokens to rows"}};

static const struct work *work_of(const struct qn_route_plan *plan)
{
    return plan->moves ? &moving : &works[plan->route.work];
}

static int is_few(const struct qn_route *route)
{
    return route->work == QUERN_ROUTE && route->m * route->topk <= QN_FEW_PAIRS;
}

/* ---------------------------------------------------------------- plan */

static int load(struct qn_session *s, struct qn_route_plan *plan, int backend)
{
    const struct qn_recipe *plain = qn_dequantize_plain(s->ctx);
    const struct work *const work = work_of(plan);
    struct qn_quantization q = {.work = QUERN_QUANTIZE,
                                .of = QN_X,
                                .type = QUERN_F32,
                                .copies = QUERN_ROWWISE,
                                .groups = 1};

    if (!plain)
        return qn_error_set(QUERN_ENOKERNEL,
                            "%s: no recipe has bf16 for x, w and dy, whose "
                            "kernels would do it",
                            qn_routing_name(plan->route.work));
    strncpy(q.recipe, plain->name, sizeof q.recipe - 1);
    return qn_quantize_steps(s, &q, backend, work->ops, work->count,
                             &plan->launches);
}

int qn_route_plan_inner(struct qn_session *s, const struct qn_route *route,
                        int backend, struct qn_route_plan **out)
{
    struct qn_route_plan *plan = calloc(1, sizeof *plan);
    int code;

    if (!plan)
        return qn_error_memory();
    plan->ctx = s->ctx;
    plan->route = *route;
    plan->driver = s->driver;
    plan->context = s->scope.context;
    plan->moves = backend != QUERN_BACKEND_HOST && is_few(route);
    code = qn_route_needs(route, &plan->need);
    if (!code)
        code = load(s, plan, backend);
    if (code)
        qn_route_plan_free(plan);
    else
        *out = plan;
    return code;
}

int qn_route_plan_session(struct qn_session *s, const struct qn_route *route,
                          struct qn_route_plan **plan)
{
    int backends[2];

    qn_select_backends(s->ctx, s->demand.backend, backends);
    return qn_route_plan_inner(s, route, backends[0], plan);
}

static int make(struct qn_session *s, const void *route, void *plan)
{
    return qn_route_plan_session(s, route, plan);
}

static void drop(void *plan)
{
    struct qn_route_plan **at = plan;

    qn_route_plan_free(*at);
    *at = NULL;
}

int qn_route_plan(struct quern_context *ctx, const struct qn_route *route,
                  const struct qn_plan_options *options,
                  struct qn_route_plan **plan)
{
    static const struct qn_plan_kind kind = {make, drop};
    const int code = qn_session_no_cublaslt(options, "routes");

    *plan = NULL;
    return code ? code : qn_session_plan(ctx, options, &kind, route, plan);
}

void qn_route_plan_free(struct qn_route_plan *plan)
{
    if (plan)
        qn_quantize_plan_free(plan->launches);
    free(plan);
}

int qn_route_evidence(const struct qn_route_plan *plan)
{
    return qn_quantize_evidence(plan->launches);
}

void qn_route_plan_info(const struct qn_route_plan *plan,
                        struct quern_plan_info *info)
{
    const struct qn_quantize_plan *launches = plan->launches;

    *info = (struct quern_plan_info){
        .kernel = launches->steps[launches->nsteps - 1].kernel->name,
        .backend = launches->backend,
        .sms = launches->workers,
        .evidence = qn_route_evidence(plan),
        .workspace_bytes = plan->need.workspace_bytes};
}

/* ----------------------------------------------------------------- why */

void qn_route_explain(const struct qn_route_plan *plan, const char *indent,
                      struct qn_text *text)
{
    const struct work *const work = work_of(plan);

    for (int i = 0; i < plan->launches->nsteps; i++) {
        const struct qn_quantize_step *step = &plan->launches->steps[i];

        qn_text_add(text, "%s%s%s: %s\n", *indent ? "" : "\n", indent,
                    qn_op_name(work->ops[i]), work->does[i]);
        qn_step_explain(step->kernel->name, step->dependent, indent, text);
    }
}

static int explain(struct qn_session *s, const void *given,
                   struct qn_text *text)
{
    const struct qn_route *route = given;
    struct qn_route_plan *plan;
    char line[512];
    int code = qn_route_plan_session(s, route, &plan);

    if (code)
        return code;
    qn_route_print(route, line, sizeof line);
    qn_text_add(text, "%s\nbackend %s, %d %s\n", line,
                qn_backend_name(plan->launches->backend), s->demand.sms,
                plan->launches->backend == QUERN_BACKEND_HOST
                    ? "threads"
                    : "multiprocessors");
    if (qn_session_gpu(s))
        qn_evidence_why(qn_route_evidence(plan), qn_session_capability(s),
                        text);
    qn_route_explain(plan, "", text);
    qn_route_plan_free(plan);
    return QUERN_OK;
}

int qn_route_why(struct quern_context *ctx, const struct qn_route *route,
                 const struct qn_plan_options *options, char **out)
{
    const int code = qn_session_no_cublaslt(options, "routes");

    return code ? code
                : qn_session_why(ctx, NULL, options, explain, route, out);
}

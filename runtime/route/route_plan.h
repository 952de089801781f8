/* SPDX-License-Identifier: Apache-2.0 */
/* route_plan.h: plans and runs of lines about routes. */
#ifndef QUERN_ROUTE_ROUTE_PLAN_H
#define QUERN_ROUTE_ROUTE_PLAN_H

#include "problem/route.h"

struct cu_context;
struct qn_driver;
struct qn_quantize_plan;
struct qn_session;
struct qn_text;
struct quern_context;

struct qn_route_plan {
    struct quern_context *ctx;
    struct qn_route route;
    struct qn_route_description need;
    struct qn_quantize_plan *launches; /* in the order of a run */
    int moves; /* of ROUTE: its launch can move tokens to rows, too */
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
};

/* As qn_plan, for every launch. A named kernel and cublaslt are refused. */
int qn_route_plan(struct quern_context *ctx, const struct qn_route *route,
                  const struct qn_plan_options *options,
                  struct qn_route_plan **plan);
void qn_route_plan_free(struct qn_route_plan *plan);
void qn_route_plan_info(const struct qn_route_plan *plan,
                        struct quern_plan_info *info);

/* The least evidence of its kernels, of enum quern_evidence. */
int qn_route_evidence(const struct qn_route_plan *plan);

/* The same as part of another plan, in its session, and with a backend that is
   not the session's. */
int qn_route_plan_session(struct qn_session *session,
                          const struct qn_route *route,
                          struct qn_route_plan **plan);
int qn_route_plan_inner(struct qn_session *session,
                        const struct qn_route *route, int backend,
                        struct qn_route_plan **plan);

/* Run a line with the plan's first word, whose arguments were checked, in the
   plan's context. */
int qn_route_launch(const struct qn_route_plan *plan,
                    const struct qn_route *route,
                    const struct qn_route_args *args, void *stream);

/* Its launches, each with its kernel. */
void qn_route_explain(const struct qn_route_plan *plan, const char *indent,
                      struct qn_text *text);

/* As quern_run, quern_check and quern_why. */
int qn_route_run(const struct qn_route_plan *plan,
                 const struct qn_route_args *args, void *stream);
int qn_route_run_check(const struct qn_route_plan *plan, void *workspace,
                       void *stream);
int qn_route_why(struct quern_context *ctx, const struct qn_route *route,
                 const struct qn_plan_options *options, char **text);

#endif

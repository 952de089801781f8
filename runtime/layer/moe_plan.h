/* SPDX-License-Identifier: Apache-2.0 */
/* moe_plan.h: plans and runs of layers from unpermuted tokens. */
#ifndef QUERN_LAYER_MOE_PLAN_H
#define QUERN_LAYER_MOE_PLAN_H

#include "problem/moe.h"

struct qn_mlp_plan;
struct quern_queue;
struct qn_route_plan;
struct qn_session;
struct quern_context;

/*
** The launches of a phase, in order (tokens [m, ..], rows [m * topk, ..]):
**
**   forward    the route; x to rows, and with prob=h probabilities, of few
**              tokens in the route's launch; the MLP's forward; rows to y
**   backward   dy to rows, and probabilities; x to rows where the gradient of
**              w1 reads them; the MLP's backward, and its wgrad if dw1 or dw2
**              is given; rows to dx, and dprob
**   wgrad      the MLP's, from `saved` and `pending` alone
**   weights    the MLP's
*/
struct qn_moe_plan {
    struct quern_context *ctx;
    struct qn_moe moe;
    const struct qn_recipe *recipe;
    struct qn_mlp_description need;
    size_t scratch; /* of the workspace, before the rows */
    struct qn_route_plan *maps, *permute, *combine;
    struct qn_mlp_plan *mlp;
};

/* Does a product of the phase, forward or backward, read tokens of x as they
   are, so that a run may have to copy them to where it can? */
int qn_moe_copies(const struct qn_moe_plan *plan, int phase);

/* As qn_mlp_plan and so on. */
int qn_moe_plan(struct quern_context *ctx, const struct qn_moe *moe,
                const struct qn_plan_options *options,
                struct qn_moe_plan **plan);
int qn_moe_plan_inner(struct qn_session *session, const struct qn_moe *moe,
                      struct qn_moe_plan **plan);
void qn_moe_plan_free(struct qn_moe_plan *plan);
void qn_moe_plan_info(const struct qn_moe_plan *plan,
                      struct quern_plan_info *info);
int qn_moe_run(const struct qn_moe_plan *plan, const struct qn_mlp_args *args,
               int phase, void *stream);
int qn_moe_put(const struct qn_moe_plan *plan, const struct qn_mlp_args *args,
               struct quern_queue *queue, int layer);
int qn_moe_run_check(const struct qn_moe_plan *plan, void *workspace,
                     void *stream);
int qn_moe_why(struct quern_context *ctx, const struct qn_moe *moe,
               const struct qn_plan_options *options, char **text);

#endif

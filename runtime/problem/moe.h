/* SPDX-License-Identifier: Apache-2.0 */
/*
** moe.h: a mixture-of-experts layer, from unpermuted tokens to tokens: a route,
** the MLP of its rows, and the moves between tokens and rows.
*/
#ifndef QUERN_PROBLEM_MOE_H
#define QUERN_PROBLEM_MOE_H

#include "problem/mlp.h"
#include "problem/route.h"

struct qn_moe {
    struct qn_mlp mlp; /* of the experts; but m counts tokens, probability is
                          of enum quern_weighting, and sizes are the route's */
    int topk, experts, first, index; /* as in struct qn_route */
    int residual;                    /* 1: args.residual is added to y */
    int gather;                      /* enum quern_tokens */
    int scatter; /* 1: y and dx are at args.y_addresses and dx_addresses */
};

/* Memory of a run: what a layer has besides its MLP. Rows are [m * topk,
   hidden] in the order of experts. */
enum qn_moe_slot {
    QN_MOE_LENGTHS, /* [G] */
    QN_MOE_INVERSE, /* [m, topk] */
    QN_MOE_GATHER,  /* [m * topk], if a launch finds tokens of rows */
    QN_MOE_COUNT,   /* [1] tokens, if these may be cast in order */
    QN_MOE_Y,       /* the experts' results; mostly in the place of MOVED */
    QN_MOE_DY,      /* rows of dy; mostly there, too */
    QN_MOE_X,       /* rows of x for the gradients */
    QN_MOE_MOVED,   /* rows of x, and of dx */
    QN_MOE_PROB,    /* [m * topk] probabilities of rows */
    QN_MOE_DPROB,   /* their gradients */
    QN_MOE_SLOTS
};

/* Its buffer (enum qn_mlp_buffer) and its offset there; bytes 0: none. */
struct qn_moe_slice {
    int buffer;
    size_t at, bytes;
};

struct qn_moe_space {
    struct qn_moe_slice slots[QN_MOE_SLOTS];
    size_t saved, pending; /* bytes before those of the MLP */
    size_t scratch;        /* of the workspace, before the rows */
    size_t workspace;      /* of all */
};

/* As qn_problem_parse and qn_problem_print. */
int qn_moe_parse(struct quern_context *ctx, const char *text,
                 struct qn_moe *moe);
int qn_moe_print(const struct qn_moe *moe, char *buffer, size_t size);

/* Its parts: the MLP of m * topk rows, and lines about routes with the first
   word `work` (enum quern_routing). */
void qn_moe_mlp(const struct qn_moe *moe, struct qn_mlp *mlp);
void qn_moe_route(const struct qn_moe *moe, int work, struct qn_route *route);

/* Does the gradient of w1 read rows of x, or that of w2 rows of dy? */
int qn_moe_keeps(const struct qn_moe *moe, const struct qn_recipe *recipe,
                 int tensor);

/* Does the cast of x or dy read tokens through indices, so that there are no
   rows of it? Its rows must be scaled, and copies of tokens. */
int qn_moe_gathers(const struct qn_moe *moe, const struct qn_recipe *recipe,
                   int tensor);

/* Does the recipe scale a token by itself, and without chance? Then results of
   a token do not depend on others: docs/layers.md. */
int qn_moe_within(const struct qn_recipe *recipe);

/* The slots of a run of moe->mlp.m tokens; those in the workspace come after
   `scratch` bytes, which the route and the MLP use. */
void qn_moe_space_fill(const struct qn_moe *moe, const struct qn_recipe *recipe,
                       size_t scratch, struct qn_moe_space *space);

/* As qn_problem_describe; tensors have tokens. The last two may be NULL. */
int qn_moe_needs(struct quern_context *ctx, const struct qn_moe *moe,
                 struct qn_mlp_description *description);
int qn_moe_describe(struct quern_context *ctx, const struct qn_moe *moe,
                    struct qn_mlp_description *description,
                    struct qn_moe_space *space,
                    const struct qn_recipe **recipe);

#endif

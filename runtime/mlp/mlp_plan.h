/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_plan.h: plans and runs of an MLP.
*/
#ifndef QUERN_MLP_MLP_PLAN_H
#define QUERN_MLP_MLP_PLAN_H

#include "choose/model.h"
#include "problem/mlp.h"
#include "product/launch.h"

#include <stddef.h>

struct qn_region;
struct qn_session;
struct qn_text;
struct quern_context;

struct qn_mlp_plan {
    struct quern_context *ctx;
    struct qn_mlp mlp;
    const struct qn_recipe *recipe;
    struct qn_mlp_description need;
    struct qn_mlp_space space;
    struct qn_launch launches[QN_MLP_LAUNCHES]; /* of casts and products, run
                                                   in the order of steps;
                                                   neither: nothing to do */
    int fused;      /* the product of pre makes h, too, so no cast does */
    int apart;      /* one would, but two launches take less time */
    int back;       /* and that of dh dpre, db1 and dprob */
    int gathers;    /* the product of pre reads tokens of x through indices */
    int gathers_dy; /* and that of dh tokens of dy */
    int scatters_y, scatters_dx; /* products write rows at tokens' addresses */
    struct qn_gradient_figures compared; /* both strategies to make dpre */
    enum qn_before ends[QUERN_PHASES];   /* the last launch of each phase, where
                                           others may depend on it */
    int layer; /* part of a layer, whose route has not run when arguments are
                  checked: each group may have rows, and y may take the place
                  of x, dx that of dy */
};

/* On the session's machine, whose options hold. Errors are those of
   qn_mlp_plan. */
int qn_mlp_plan_inner(const struct qn_session *session,
                      const struct qn_mlp *mlp, struct qn_mlp_plan **plan);

/* The plan for these arguments: itself, or for fewer rows a copy in `room` that
   owns nothing, with the workspace of the plan. QUERN_EINVAL. */
int qn_mlp_plan_fit(const struct qn_mlp_plan *plan,
                    const struct qn_mlp_args *args, struct qn_mlp_plan *room,
                    const struct qn_mlp_plan **fitted);

/* Let launches depend on those before them in their phase where that pays;
   `first` is what comes before each phase. */
void qn_mlp_depend(struct qn_mlp_plan *plan, const enum qn_before first[]);

/* Run the steps of the phases, which were checked, in the plan's context; the
   plan is fitted to the rows. */
int qn_mlp_launch(const struct qn_mlp_plan *plan,
                  const struct qn_mlp_args *args, int first, int last,
                  void *stream);

/* The steps of a phase (enum quern_phase), each with its kernel. */
void qn_mlp_explain(const struct qn_mlp_plan *plan, int phase,
                    struct qn_text *text);

/* QUERN_EINVAL: options that an MLP's plan does not take. */
int qn_mlp_plan_options(const struct qn_plan_options *options);

/* The least evidence of its kernels, of enum quern_evidence. */
int qn_mlp_evidence(const struct qn_mlp_plan *plan);

/* All rules of the arguments of a call, whose phases are `first` to `last`.
   QUERN_EINVAL names argument and rule. */
int qn_mlp_args(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
                int first, int last);

/* The same phases of a layer, whose `regions`, at most QN_MLP_LAYER_REGIONS,
   must overlap no weights, biases or state of scaling that the MLP uses, nor
   one another. QUERN_EINVAL names both. */
enum { QN_MLP_LAYER_REGIONS = 16 };
int qn_mlp_args_layer(const struct qn_mlp_plan *plan,
                      const struct qn_mlp_args *args, int first, int last,
                      const struct qn_region *regions, int count);

/* Phases, as bits of enum quern_phase, that need a tensor of the arguments, do
   without it, and write it; and the word of enum quern_mlp_pointers that lets
   it be given by addresses. 0: there is no tensor at the offset. */
struct qn_mlp_use {
    int needed, optional, written, pointers;
};
int qn_mlp_args_use(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                    size_t offset, struct qn_mlp_use *use);

/* Whether dw1 or dw2 is given. */
int qn_mlp_makes_dw(const struct qn_mlp_args *args);

/* The arguments of one product of a call; 0: there is no such product. */
int qn_mlp_product_args(const struct qn_mlp_plan *plan,
                        const struct qn_mlp_args *args, int product,
                        struct qn_args *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan.h: what quern_plan prepares for quern_run.
*/
#ifndef QUERN_PRODUCT_PLAN_H
#define QUERN_PRODUCT_PLAN_H

#include "choose/step.h"
#include "choose/tensormap.h"
#include "choose/values.h"
#include "device/host.h"
#include "problem/geometry.h"

#include <string.h>

struct cu_context;
struct cu_function;
struct qn_ahead_plan;
struct qn_cublaslt_engine;
struct qn_driver;
struct qn_result_plan;
struct qn_session;
struct quern_context;
struct quern_quantize_plan;

/* A map that the kernel takes, for rows without gaps. */
struct qn_plan_map {
    const struct qn_map_param *param;
    struct qn_map map;
};

struct quern_plan {
    struct quern_context *ctx;
    struct quern_problem problem;
    struct quern_description need;
    const struct qn_kernel *kernel;      /* NULL for the backend cublaslt */
    struct qn_cublaslt_engine *products; /* NULL for all others */
    const char *name;                    /* of these, for people */
    int streams;                         /* over which these are spread */
    int scaled;                          /* the recipe scales some tensor */
    int backend;
    int tuned;                             /* measured to be the fastest */
    int workers;                           /* CTAs, or threads of the host */
    struct qn_geometry operands[QN_ROLES]; /* by enum qn_role */
    int mapped[QN_ROLES];                  /* the kernel has a map of it */
    int takes_pointers[QN_ROLES];          /* and its matrices' addresses */
    int parts; /* products that a launch merges, at least 1 */
    struct qn_plan_map maps[QN_MAPS];
    int nmaps;
    struct qn_values values; /* complete but for addresses */
    qn_host_function *function;
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
    struct cu_function *kernel_function;
    struct cu_launch launch; /* all but the stream and the attributes */
    struct cu_attribute cluster;
    struct qn_step size_step;      /* where sizes come from the host */
    struct qn_ahead_plan *ahead;   /* NULL: the kernel reads the operands */
    struct qn_result_plan *result; /* NULL: D is made by one kernel */
    struct quern_quantize_plan *quantizer; /* of A, where a run makes it */
    struct quern_quantize_plan *of_in;     /* its dbias, where no cast sums */
    struct quern_quantize_plan *sums;      /* launches behind it; NULL: none */
};

/*
** The plan for these arguments: itself, or where they have fewer rows along the
** ragged axis a copy of it in `room` for so many. QUERN_EINVAL, QUERN_ECUDA.
*/
int qn_plan_fit(const struct quern_plan *plan, const struct quern_args *args,
                struct quern_plan *room, const struct quern_plan **fitted);

/*
** What a run of a kernel would launch it with: `values`, and in `params` the
** address of each that the kernel takes. The plan's context is current.
** Errors are those of quern_run.
*/
int qn_run_prepare(const struct quern_plan *plan, const struct quern_args *args,
                   struct qn_values *values, void **params);

/* quern_plan with a band that kernels must run with; 0: as usual. */
int qn_plan_make(struct quern_context *ctx, const struct quern_problem *problem,
                 const struct quern_plan_options *options, int band,
                 struct quern_plan **plan);

/* Open a session for a plan, which is due to be closed by qn_plan_end after
   errors too. Errors of quern_plan. */
int qn_plan_begin(struct qn_session *session, struct quern_context *ctx,
                  const struct quern_problem *problem,
                  const struct quern_plan_options *options, int band);
int qn_plan_end(struct qn_session *session, const struct quern_plan *plan,
                int code);

/* A plan of a kernel that reads the operands, whatever the problem says of
   launches before it: in a session, in one of its own, and in one of its own
   that neither looks for a capture nor says which plan it made. */
int qn_plan_inside(struct qn_session *session, struct quern_plan **plan);
int qn_plan_one(struct quern_context *ctx, const struct quern_problem *problem,
                const struct quern_plan_options *options,
                struct quern_plan **plan);
int qn_plan_alone(struct quern_context *ctx,
                  const struct quern_problem *problem,
                  const struct quern_plan_options *options,
                  struct quern_plan **plan);

/* Free such a plan, or that part of another one; NULL is none. */
void qn_plan_drop(struct quern_plan *plan);

/* An empty plan, NULL if memory ran out; and all of it that follows from
   problem and machine. Where `way` (enum quern_expand) was not said, it is now,
   and with it the workspace. */
struct quern_plan *qn_plan_new(void);
void qn_plan_fill(struct quern_plan *plan, const struct qn_session *session,
                  int way);

/* What the options ask for where nothing is known: the measurement lands in the
   files, or in the log if it fails. */
int qn_plan_tune(struct qn_session *session);

/* Is this the error of a way that nobody asked for: no kernel, or none that can
   be compiled here? What was linked may serve in another. */
int qn_plan_given_up(int code);

/* The name of what computes, for people. */
const char *qn_plan_name(const struct quern_plan *plan);

/* What a plan of several is asked about: its product's kernel, and where that
   runs. */
void qn_plan_speak_for(struct quern_plan *plan,
                       const struct quern_plan *product);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: the result of qn_plan for qn_run. */
#pragma once

#include "choose/select.h"
#include "choose/tensormap.h"
#include "choose/values.h"
#include "device/host.h"
#include "problem/geometry.h"
#include "product/launch.h"

#include <string.h>

struct cu_context;
struct cu_function;
struct qn_cublaslt_engine;
struct qn_driver;
struct qn_session;
struct quern_context;

/* Does a run have the operand? */
enum qn_has { QN_HAS_NEVER, QN_HAS_IF_GIVEN, QN_HAS_ALWAYS };

/* A map that the kernel takes, for rows without gaps. */
struct qn_plan_map {
    const struct qn_map_param *param;
    struct qn_map map;
    int64_t pitch;          /* elements from one row to the next */
    size_t tensor, address; /* of a run: where struct qn_args has them */
};

struct qn_plan {
    struct quern_context *ctx;
    struct qn_problem problem;
    struct qn_description need;
    const struct qn_kernel *kernel;      /* NULL for the backend cublaslt */
    struct qn_cublaslt_engine *products; /* NULL for all others */
    const char *name;                    /* of these, for people */
    int streams;                         /* over which these are spread */
    int scaled;                          /* the recipe scales some tensor */
    int backend;
    int capability;                        /* of the GPU, 90 for 9.0 */
    int tuned;                             /* measured to be the fastest */
    int workers;                           /* multiprocessors, or threads */
    struct qn_geometry operands[QN_ROLES]; /* by enum qn_role */
    unsigned char has[QN_ROLES];           /* enum qn_has */
    int mapped[QN_ROLES];                  /* the kernel has a map of it */
    int microbatches; /* products that a launch merges, at least 1 */
    struct qn_plan_map maps[QN_MAPS];
    int nmaps;
    struct qn_values values; /* complete but for addresses */
    qn_host_function *function;
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
    struct cu_function *kernel_function;
    struct cu_launch launch; /* all but the stream and the attributes */
    struct cu_attribute cluster;
    int dependent;                          /* as qn_driver_launch has it */
    struct qn_figures figures;              /* of the kernel, by the model */
    struct qn_launch launches[QN_LAUNCHES]; /* in the order of a run */
    int nlaunches;
    const struct qn_recipe *recipe;
    const struct qn_recipe *target; /* of requantized operands */
    size_t cast, numbers; /* in the workspace: of QN_WORK_QUANTIZE_D, and D
                             before it */
    size_t sums;          /* in fp32, that QN_WORK_EPILOGUE reads; 0: none */
};

/* The plan for these arguments: itself, or where they have fewer rows along the
   ragged axis a copy of it in `room` for so many. QUERN_EINVAL, QUERN_ECUDA. */
int qn_plan_fit(const struct qn_plan *plan, const struct qn_args *args,
                struct qn_plan *room, const struct qn_plan **fitted);

/* The same for a total along the ragged axis; of a product that gathers, for
   `tokens` rows of A. */
int qn_plan_fit_total(const struct qn_plan *plan, int64_t total, int64_t tokens,
                      struct qn_plan *room, const struct qn_plan **fitted);

/* The launch arguments of a kernel's run: `values`, and in `params` the
   address of each that the kernel takes. The plan's context is current.
   Errors are those of qn_run. */
int qn_run_prepare(const struct qn_plan *plan, const struct qn_args *args,
                   struct qn_values *values, void **params);

/* qn_plan with a band that kernels must run with; 0: as usual. */
int qn_plan_make(struct quern_context *ctx, const struct qn_problem *problem,
                 const struct qn_plan_options *options, int band,
                 struct qn_plan **plan);

/* The plan of the session's problem, with any launches. Errors are those
   of qn_plan. An outline has kernels, but nothing to run. */
int qn_plan_session(struct qn_session *session, struct qn_plan **plan);

/* A plan of one kernel that reads the operands, for any launches before it in
   the problem. */
int qn_plan_inside(struct qn_session *session, struct qn_plan **plan);

/* A plan of a problem that is part of the session's, as `make` makes it. */
int qn_plan_inner(const struct qn_session *session,
                  const struct qn_problem *problem,
                  const struct qn_plan_options *options,
                  int (*make)(struct qn_session *, struct qn_plan **),
                  struct qn_plan **plan);

/* A plan of several launches, which `add` appends. Its dequantize strategy is
   `strategy`, from which the workspace follows. */
int qn_plan_several(struct qn_session *session, int strategy,
                    int (*add)(struct qn_plan *, struct qn_session *),
                    struct qn_plan **plan);

/* Tune as the options request if nothing is known: the measurement lands in the
   files, or in the log if it fails. */
int qn_plan_tune(struct qn_session *session);

/* Is this the error of a strategy that the problem does not name: no kernel, or
   none that can be compiled here? A linked kernel may serve in another. */
int qn_plan_given_up(int code);

/* The least evidence of its kernels, of enum quern_evidence. */
int qn_plan_evidence(const struct qn_plan *plan);

/* The name of the kernel or library, for people. */
const char *qn_plan_name(const struct qn_plan *plan);

/*
** cublaslt_loop.h: plans and runs of the backend cublaslt.
*/
#ifndef QUERN_CUBLASLT_LOOP_H
#define QUERN_CUBLASLT_LOOP_H

#include "plan.h"

/* Of a run's workspace: the error record, constants, the library's scratch. */
size_t qn_cublaslt_workspace(const struct quern_problem *problem);

/* QUERN_ENOKERNEL if cuBLASLt has no product of the problem's types. */
int qn_cublaslt_serves(const struct quern_problem *problem,
                       const struct qn_recipe *recipe);

/*
** Open the library and prepare a plan whose problem, operands, driver and
** workers are set; `sms` is 0 for all of the GPU's. Its context is current.
** QUERN_EMISSING, QUERN_ENOKERNEL, QUERN_ECUDA, QUERN_ENOMEM.
*/
int qn_cublaslt_plan(struct quern_plan *plan, const struct qn_recipe *recipe,
                     int sms);
void qn_cublaslt_plan_free(struct quern_plan *plan);

/* Say what would run, or why nothing would. */
struct qn_text;
void qn_cublaslt_why(struct quern_context *ctx,
                     const struct quern_problem *problem,
                     const struct qn_recipe *recipe, struct qn_text *text);

/* The rules of quern_run that are this backend's own. QUERN_EINVAL. */
int qn_cublaslt_check(const struct quern_plan *plan,
                      const struct quern_args *args);

/*
** Queue all groups, in the plan's context; `values` is complete, as for a
** kernel. QUERN_ECAPTURE for sizes on a capturing stream; QUERN_ECUDA.
*/
int qn_cublaslt_run(const struct quern_plan *plan,
                    const struct qn_values *values, const int64_t *sizes,
                    struct cu_stream *stream);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_loop.h: plans and runs of the backend cublaslt. */
#pragma once

#include "product/backend.h"

struct cu_stream;
struct qn_session;
struct qn_text;
struct qn_values;
struct qn_plan;

/* Open the library and prepare a plan whose problem, operands, driver and
   workers are set. Its context is current.
   QUERN_EMISSING, QUERN_ENOKERNEL, QUERN_ECUDA, QUERN_ENOMEM. */
int qn_cublaslt_plan(struct qn_plan *plan, struct qn_session *session);
void qn_cublaslt_plan_free(struct qn_plan *plan);

/* Describe the launch, or the reason that there is none: *served becomes 0.
   QUERN_ECUDA, QUERN_ENOMEM. */
int qn_cublaslt_why(const struct qn_session *session, int *served,
                    struct qn_text *text);

/* The rules of qn_run that are this backend's own. QUERN_EINVAL. */
int qn_cublaslt_check(const struct qn_plan *plan, const struct qn_args *args);

/* Queue all groups, in the plan's context; `values` is complete, as for a
   kernel. QUERN_ECAPTURE for sizes on a capturing stream; QUERN_ECUDA. */
int qn_cublaslt_run(const struct qn_plan *plan, const struct qn_values *values,
                    const int64_t *sizes, struct cu_stream *stream);

/* For the context, which hands it to plans. */
extern const struct qn_backend qn_cublaslt_backend;

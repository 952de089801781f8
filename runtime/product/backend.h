/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h: a library that multiplies instead of a kernel of the registry. */
#pragma once

#include "internal.h"

struct cu_stream;
struct qn_session;
struct qn_text;
struct qn_values;
struct qn_plan;

/* Functions that plans and runs call if a plan has `products`. */
struct qn_backend {
    /* Open the library and prepare a plan whose problem, operands, driver and
       workers are set. Its context is current.
       QUERN_EMISSING, QUERN_ENOKERNEL, QUERN_ECUDA, QUERN_ENOMEM. */
    int (*plan)(struct qn_plan *plan, struct qn_session *session);

    /* The rules of qn_run that are the backend's own. QUERN_EINVAL. */
    int (*check)(const struct qn_plan *plan, const struct qn_args *args);

    /* Queue all groups, in the plan's context; `values` is complete, as for a
       kernel. QUERN_ECAPTURE for sizes on a capturing stream; QUERN_ECUDA. */
    int (*run)(const struct qn_plan *plan, const struct qn_values *values,
               const int64_t *sizes, struct cu_stream *stream);

    /* Describe the launch, or the reason that there is none: *served becomes 0.
       QUERN_ECUDA, QUERN_ENOMEM. */
    int (*explain)(const struct qn_session *session, int *served,
                   struct qn_text *text);

    void (*free)(struct qn_plan *plan);
};

/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: the records of runs about group sizes that break a rule. */
#pragma once

#include "internal.h"

struct cu_context;
struct qn_driver;

/* Wait for `stream`, then report and clear the record at the start of the
   workspace; `driver` is NULL for host memory. `sizes` has the arrays that
   messages name; none: sizes came from the host. `call` is the name of the
   caller's function. QUERN_ESIZES, QUERN_ECAPTURE, QUERN_ECUDA. */
int qn_check_record(struct qn_driver *driver, struct cu_context *context,
                    void *workspace, const struct qn_tensor *sizes,
                    const char *call, void *stream);

/* The same of a route's indices: token, k, and the rule. */
int qn_check_route(struct qn_driver *driver, struct cu_context *context,
                   void *workspace, int topk, int experts, void *stream);

/* SPDX-License-Identifier: Apache-2.0 */
/* host_moe.h: layers in the host tests, in moe.c. */
#pragma once

#include "host.h"

#include "oracle/moe_job.h"

/* A layer of the host backend with its drawn data, and a run of it; each fails
   the test if it cannot be had. The caller frees the job. */
void host_moe_begin(struct qn_moe_job *, const char *line);
void host_moe_run(struct qn_moe_job *, const char *line);

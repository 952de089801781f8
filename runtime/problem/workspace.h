/* SPDX-License-Identifier: Apache-2.0 */
/*
** workspace.h: the bytes of workspace that a problem needs.
*/
#ifndef QUERN_PROBLEM_WORKSPACE_H
#define QUERN_PROBLEM_WORKSPACE_H

#include "internal.h"

struct quern_context;

/* Bytes of a run's workspace, whichever way its plan will take. */
size_t qn_workspace_bytes(struct quern_context *ctx,
                          const struct qn_problem *problem,
                          const struct qn_recipe *recipe);

#endif

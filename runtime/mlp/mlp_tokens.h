/* SPDX-License-Identifier: Apache-2.0 */
/* mlp_tokens.h: do products of a layer read tokens through indices? */
#pragma once

#include "problem/mlp.h"

struct qn_session;

/* Should the product `rows`, of pre or dh, read tokens? *tokens is it then, if
   a kernel serves that. */
int qn_mlp_tokens_wanted(const struct qn_session *session,
                         const struct qn_mlp *mlp,
                         const struct qn_recipe *recipe,
                         const struct qn_problem *rows,
                         struct qn_problem *tokens);

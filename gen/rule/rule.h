/* SPDX-License-Identifier: Apache-2.0 */
/* rule.h: what is asked of rules. */
#pragma once

#include "rule/trace.h"
#include "statement/spec.h"

/* Call a scale's rules for each type of input. Returns 0, or 1 and noted: once,
** whatever the number of inputs. */
int qg_rule_trace_all(struct qg *, struct qg_scale *);
/* Where a scale's rule begins, or its second level's. */
struct qg_location qg_rule_location(struct qg *, const struct qg_scale *,
                                    int global);
/* What a rule usually returns, for a message; of the second level, too. */
const char *qg_rule_usual(const struct qg_scale *, int global);
/* Do they make sense of ordinary numbers? Returns 0, or 1 and noted. */
int qg_trial_check(struct qg *, const struct qg_scale *);

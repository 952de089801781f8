/* SPDX-License-Identifier: Apache-2.0 */
/* rule.h: the requirements on rules. */
#pragma once

#include "rule/trace.h"
#include "statement/spec.h"

/* Call a scale's rules for each type of input. Returns 0, or 1 and noted: once
** for any number of inputs. */
int qg_rule_trace_all(struct qg *, struct qg_scale *);
/* The first line of a scale's rule, or of its second level's. */
struct qg_location qg_rule_location(struct qg *, const struct qg_scale *,
                                    int global);
/* The usual results of a rule, for a message; of the second level, too. */
const char *qg_rule_usual(const struct qg_scale *, int global);
/* Do they make sense of ordinary values? Returns 0, or 1 and noted. */
int qg_trial_check(struct qg *, const struct qg_scale *);
/* Is each scale that they store a power of two, from 2^-127 to 2^127? */
int qg_trial_powers(const struct qg_scale *);

/* SPDX-License-Identifier: Apache-2.0 */
/* why.h: the launches of a plan, in words. */
#pragma once

struct qn_launch;
struct qn_text;
struct qn_plan;

/* A launch with its line and its kernels, or if its product has a list each of
   that. The product of `plan` itself has no line. */
void qn_why_launch(const struct qn_plan *plan, const struct qn_launch *launch,
                   const char *indent, struct qn_text *text);

/* SPDX-License-Identifier: Apache-2.0 */
/*
** lines.h: the problems whose launches are logged.
**
** A line is one that qn_problem_parse, qn_quantize_parse, qn_moe_parse or
** qn_mlp_parse takes. Words after a bar say how its run is called:
**
**   offsets    offsets instead of lengths       gaps     both
**   i64        they are int64                   fewer    half of the rows
**   strides    rows that are 64 longer          noop     a flag
**   queue=N    N of them put, then one flush    sms=N    of the plan
**   device=X.Y another GPU than one of compute capability 9.0
*/
#pragma once

/* Logged in full, with all that qn_why says. NULL ends both lists. */
extern const char *const launch_lines[];

/* Logged in short, once for each recipe, whose name replaces the R. */
extern const char *const launch_patterns[];

/* SPDX-License-Identifier: Apache-2.0 */
/*
** why.h: the launches of a plan, in words.
*/
#ifndef QUERN_PRODUCT_WHY_H
#define QUERN_PRODUCT_WHY_H

#include <stddef.h>

struct qn_text;
struct quern_plan;
struct quern_quantize_plan;

/* Each launch with its line and its kernels, in the order of a run. The product
   of a plan that has no other kernel has no line. */
void qn_why_list(const struct quern_plan *plan, const char *indent,
                 struct qn_text *text);

/* The line of the plan's problem. */
void qn_why_line(const struct quern_plan *plan, char *line, size_t size);

/* The kernels of a cast. */
void qn_why_cast(const struct quern_quantize_plan *cast, const char *indent,
                 struct qn_text *text);

#endif

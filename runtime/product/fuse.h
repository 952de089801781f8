/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuse.h: the launches before a product that quantizes what it multiplies.
*/
#ifndef QUERN_PRODUCT_FUSE_H
#define QUERN_PRODUCT_FUSE_H

#include "quern.h"

struct qn_session;
struct qn_values;
struct quern_plan;

/* Plan the launches before the product's. Freed with its plan. */
int qn_fuse_plan(struct quern_plan *plan, const struct qn_session *session);
void qn_fuse_plan_free(struct quern_plan *plan);

/* The rules of quern_run on what is quantized and made. QUERN_EINVAL. */
int qn_fuse_check(const struct quern_plan *plan, const struct quern_args *args);

/* The launches before the product's, if there are any: a cast, and where none
   sums up what is quantized one that does. `values` say where the groups' sizes
   are. */
int qn_fuse_run(const struct quern_plan *plan, const struct quern_args *args,
                const struct qn_values *values, void *stream);

#endif

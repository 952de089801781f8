/* SPDX-License-Identifier: Apache-2.0 */
/*
** model.h: what a kernel would take for a problem.
*/
#ifndef QUERN_CHOOSE_MODEL_H
#define QUERN_CHOOSE_MODEL_H

#include "internal.h"

struct qn_demand;
struct qn_figures;

/* The figures of a kernel that serves the problem: of the whole launch, or of
   as many as the problem's parts take. */
void qn_model_estimate(const struct qn_demand *demand,
                       const struct qn_kernel *kernel,
                       struct qn_figures *figures);

/* Cycles of casts that read and write so many bytes in so many launches. */
double qn_model_cast(double bytes, int launches);

#define QN_MEMORY_PER_CYCLE 2300.0 /* bytes, the whole chip */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** requantize.h: the launches that encode operands as FP8.
*/
#ifndef QUERN_PRODUCT_REQUANTIZE_H
#define QUERN_PRODUCT_REQUANTIZE_H

#include "internal.h"

struct qn_driver;
struct qn_session;
struct qn_step;
struct qn_text;

/* Load what makes operand `role`: as qn_step_load. */
int qn_requantize_load(struct qn_session *session, int role, int backend,
                       struct qn_step *step);

/* What a run encodes again. */
struct qn_reencoding {
    const struct qn_problem *problem; /* of as many rows as the run */
    const struct qn_recipe *recipe, *blocks;
    int role;
    const struct qn_tensor *copy;
    void *codes, *sf;
    unsigned int *flags;
    const void *first_dims, *offsets;
    int sizes_bytes;
    const int *noop;
    void *error;
};

/* Queue it, in the current context. QUERN_ECUDA. */
int qn_requantize_launch(struct qn_driver *driver, const struct qn_step *step,
                         const struct qn_reencoding *encoding, void *stream);

#endif

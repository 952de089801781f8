/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_use.h: a line's use of its operands.
*/
#ifndef QUERN_API_API_USE_H
#define QUERN_API_API_USE_H

#include "api/api.h"
#include "problem/quantize.h"

struct qn_needs_of {
    const struct qn_line *line;
    const union qn_needs *needs;
    const struct qn_recipe *recipe;
};

/* Scale factors of a tensor. */
struct qn_api_scales {
    int type;   /* enum quern_type */
    int global; /* there is a second level */
    int tiled;  /* of the tensor, as in struct quern_operand */
    struct qn_scale_shape shape;
};

/* Bits of the phases that the runs of a line may have. */
int qn_api_phases(const struct qn_line *line);

/* Fill in o->read, written and optional; read and written are 0 if the line has
   no such operand. For plain arrays also type and shape. `o->arg` is set. */
void qn_api_use(const struct qn_needs_of *needs, const struct qn_slot *slot,
                struct quern_operand *o);

/* The scale factors of a tensor; 0: it has none. */
int qn_api_scaled(const struct qn_needs_of *needs, int arg,
                  struct qn_api_scales *scales);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
** fidelity.h: does a quantized tensor hold the values that it was made of,
** where qn_problem_describe says that they are?
**
** Values are found by decode.c, which shares nothing with any kernel, so that a
** cast that lays its copy out otherwise is seen, though products and casts back
** may agree with it.
*/
#pragma once

#include "oracle/decode.h"

/* A copy in host memory, and the values before. */
struct qn_fidelity {
    struct qn_quantization q; /* that made it; `copies` is the one copy */
    const struct qn_recipe *recipe;
    const void *numbers; /* of q.type: [m, k], of w [G, m, k] */
    const struct qn_tensor *copy;
    const int64_t *starts, *sizes; /* of groups of tokens, one after another */
};

/* The copy's geometry as the product reads it; from q and recipe only. */
void qn_fidelity_geometry(const struct qn_fidelity *, struct qn_geometry *);

/* The two as one distance, 1 - 2xy / (xx + yy), over at most `most` lines from
   all groups. *held: is it at most `tolerance`, no line much further off, and
   is the padding of a columnwise tensor zero? Codes of the library. */
int qn_fidelity_judge(const struct qn_fidelity *, double tolerance,
                      int64_t most, double *error, int *held);

/* The permitted loss: that of q.of's format, or for a recipe that cuts
   values or rounds by chance that of the host's casts there and back, 0.25
   at most. Without values (NULL) or with many, that of normal ones of
   deviation `scale`. The quantized tensor is not read. Codes of the library. */
int qn_fidelity_tolerance(struct quern_context *, const struct qn_fidelity *,
                          float scale, double *tolerance);

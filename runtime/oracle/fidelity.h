/* SPDX-License-Identifier: Apache-2.0 */
/*
** fidelity.h: does a quantized tensor hold the numbers that it was made of,
** where quern_describe says that they lie?
**
** Values are found by decode.c, which shares nothing with any kernel, so that a
** cast that lays its copy out otherwise is seen, though products and casts back
** may agree with it.
*/
#ifndef QN_FIDELITY_H
#define QN_FIDELITY_H

#include "oracle/decode.h"

/* A copy in host memory, and the numbers before. */
struct qn_fidelity {
    struct quern_quantization q; /* that made it; `copies` is the one copy */
    const struct qn_recipe *recipe;
    const void *numbers; /* of q.type: [m, k], of w [G, m, k] */
    const struct quern_tensor *copy;
    const int64_t *starts, *sizes; /* of groups of tokens, one behind another */
};

/* The two as one distance, 1 - 2xy / (xx + yy), over at most `most` lines from
   all groups. *held: is it at most `tolerance`, no line much further off, and
   what fills a columnwise tensor up zero? Codes of the library. */
int qn_fidelity_judge(const struct qn_fidelity *, double tolerance,
                      int64_t most, double *error, int *held);

/* What may be lost: as much as the format of q.of may, or what the host's casts
   there and back lose of the numbers, 0.25 at most, of a recipe that cuts
   values or rounds by chance. Where there are no numbers (NULL) or many, of
   normal ones of deviation `scale`. The copy is not looked at. Codes of the
   library. */
int qn_fidelity_tolerance(struct quern_context *, const struct qn_fidelity *,
                          float scale, double *tolerance);

#endif

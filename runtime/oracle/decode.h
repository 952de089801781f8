/* SPDX-License-Identifier: Apache-2.0 */
/*
** decode.h: the values that a quantized tensor stands for, in double.
**
** Written from the definitions only, independent of all templates: their
** results are compared with it.
*/
#pragma once

#include "problem/geometry.h"

/* A copy in host memory, and its groups. */
struct qn_decode {
    struct qn_geometry g; /* of a scaled A or B */
    const unsigned char *data;
    const void *sf;
    const float *global;
    const int64_t *starts, *sizes; /* of the groups of tokens: the caller's */
    int64_t firsts[QUERN_MAX_GROUPS]; /* runs of 128 tokens before each */
    int multiplied; /* not 0: values times scales of blocks are those that a
                       product sums, rounded to that enum quern_type, bf16 or
                       f16. Set after qn_decode_begin */
};

/* `copy` holds addresses of the host; `starts` and `sizes` count tokens. */
void qn_decode_begin(struct qn_decode *, const struct qn_geometry *,
                     const struct qn_tensor *copy, int groups,
                     const int64_t *starts, const int64_t *sizes);

/* Elements of a group's row: k; or its tokens, to a multiple of 128, where the
   last ones are zeros or their transform. */
int64_t qn_decode_length(const struct qn_decode *, int group);

/* The index of the scale of element `k` of a group's row. */
int64_t qn_decode_scale(const struct qn_decode *, int group, int64_t row,
                        int64_t k);

/* A row of the group, scaled by its scales of both levels. The first may be
   rounded: see `multiplied`. */
void qn_decode_row(const struct qn_decode *, int group, int64_t row,
                   double *out);

/* The value of a code of `type` (enum quern_type), NaN and infinity included;
   bf16, f16 and f32 are no codes. */
double qn_decode_code(int type, unsigned code, int zero);

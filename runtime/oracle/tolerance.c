/* SPDX-License-Identifier: Apache-2.0 */
/*
** tolerance.c: how far a product may be from the one in double.
**
** Hopper's FP8 tensor cores keep about 13 bits of a sum, and drop the rest.
** If partial sums are added in fp32 every 128 values, the error no longer
** grows with k; without, it grows with its root.     COUPLED: tolerances
*/
#include "oracle/tolerance.h"

#include <math.h>

#include "base/types.h"
#include "problem/geometry.h"

/* Scales that tensor cores do not see are factors of sums: others are
   multiplied into the values, which are dequantized to 16 bits then, or to the
   FP8 that holds them. */
static int is_narrow_float(const struct qn_geometry *g)
{
    return !qn_type_is_integer(g->type) && qn_type_bits(g->type) <= 8 &&
           g->sf.scaling && (!g->sf.of_values || g->sf.scaling->as);
}

/* FP8 tensor cores take operands that are narrow on both sides, or become
   so. */
static enum qn_sums sums_of(const struct qn_problem *p,
                            const struct qn_recipe *recipe)
{
    struct qn_geometry a, b;

    if (p->dequantize == QUERN_DEQUANTIZE_FP8)
        return QN_SUMS_PROMOTED;
    qn_geometry_of(p, recipe, QN_ROLE_A, &a);
    qn_geometry_of(p, recipe, QN_ROLE_B, &b);
    if (!is_narrow_float(&a) || !is_narrow_float(&b))
        return QN_SUMS_FULL;
    return recipe->promote ? QN_SUMS_PROMOTED : QN_SUMS_NARROW;
}

struct qn_tolerance qn_tolerance_of(const struct qn_problem *p,
                                    const struct qn_recipe *recipe, int64_t k)
{
    struct qn_tolerance t = {.sums = sums_of(p, recipe)};
    /* by enum qn_sums, into fp32, bf16 and fp16 */
    const double length = (double)(k > 0 ? k : 1);
    const double full = fmax(1e-5, 2e-9 * length), grown = 4e-5 * sqrt(length);
    const double table[][3] = {
        [QN_SUMS_FULL] = {full, 4e-3, 6e-4},
        [QN_SUMS_PROMOTED] = {3e-4, 4e-3, 8e-4},
        [QN_SUMS_NARROW] = {grown, grown + 4e-3, grown + 6e-4},
    };

    t.sum = table[t.sums][0];
    t.error = table[t.sums][p->d_type == QUERN_BF16  ? 1
                            : p->d_type == QUERN_F16 ? 2
                                                     : 0];
    t.rounding = (t.sums == QN_SUMS_FULL && p->d_type != QUERN_F32) ||
                 (t.sums == QN_SUMS_PROMOTED && p->d_type == QUERN_BF16);
    return t;
}

double qn_tolerance_format(int type)
{
    switch (type) {
    case QUERN_BF16:
    case QUERN_F16:
    case QUERN_F32:
        return 1e-5;
    case QUERN_E4M3:
    case QUERN_I8:
    case QUERN_U8:
        return 1e-3;
    case QUERN_E5M2:
    case QUERN_E2M3:
        return 3e-3;
    case QUERN_E3M2:
        return 1e-2;
    default:
        return 2e-2;
    }
}

float qn_tolerance_factor(int type, float most)
{
    const double largest = type == QUERN_E4M3   ? 448
                           : type == QUERN_E5M2 ? 57344
                           : type == QUERN_I8   ? 127
                           : type == QUERN_U8   ? 127
                           : type == QUERN_E3M2 ? 28
                           : type == QUERN_E2M3 ? 7.5
                           : type == QUERN_I4   ? 8 /* 7; few values are cut */
                           : type == QUERN_U4   ? 8
                                                : 6;

    return (float)exp2(floor(log2(largest / (double)most)));
}

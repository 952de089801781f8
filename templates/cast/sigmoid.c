//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/exp.c"
/*
** 1 / (1 + e^-x), at most 2 ulp off. The sum is rounded once: the loss of 1 + 2^whole comes back
** with the rest of e^-x. If that would leave fp32's range, the sum omits 2^(whole - 64), which
** and comes last, which rounds a denormal result.
*/
FN float sigmoid_f32(float x)
{
    const struct power e = exp_parts(bounded(-x, -20, 105));
    const int kept = e.whole < 64 ? e.whole : 64;
    const float scale = power_of_two(kept), one = power_of_two(kept - e.whole);
    const float sum = add_rn(scale, one), lost = add_rn(one, -add_rn(sum, -scale));

    return mul_rn(rcp_rn(add_rn(sum, fma_rn(scale, e.part, lost))), one);
}

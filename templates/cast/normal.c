//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/exp.c"
/* Of the standard normal distribution: how much of it is below a, and its density there. */
struct normal { float below, density; };

/*
** e^(-a^2 / 2) is 2^whole * grown, with the square's rounding error taken back, and the part beyond
** |a| is that times a polynomial of 1 / (1 + 0.35 |a|): relative to the part at most 2^-21 off up
** to |a| = 13, where it becomes a denormal. 0 or 1 beyond 15.
*/
FN struct normal normal_f32(float a)
{
    const float v = bounded(a, -16, 16), square = mul_rn(v, v), lost = fma_rn(v, v, -square);
    const struct power e = exp_parts(bounded(mul_rn(-0.5f, square), -110, 0));
    const float near = add_rn(1, e.part), grown = fma_rn(mul_rn(-0.5f, lost), near, near);
    const float half = power_of_two(e.whole / 2), rest = power_of_two(e.whole - e.whole / 2);
    const float t = rcp_rn(fma_rn(magnitude(v), 0x1.666666p-2f, 1));
    struct normal n;
    float beyond;

    beyond = fma_rn(t, -0x1.ddd73ap-6f, 0x1.270c6cp-3f);
    beyond = fma_rn(beyond, t, -0x1.060e74p-2f);
    beyond = fma_rn(beyond, t, 0x1.4677b2p-3f);
    beyond = fma_rn(beyond, t, -0x1.7d551p-6f);
    beyond = fma_rn(beyond, t, 0x1.b0743ep-4f);
    beyond = fma_rn(beyond, t, 0x1.eac252p-4f);
    beyond = fma_rn(beyond, t, 0x1.1e714ap-3f);
    beyond = fma_rn(beyond, t, 0x1.1df1bep-3f);
    beyond = mul_rn(mul_rn(mul_rn(mul_rn(beyond, t), grown), half), rest);
    n.below = a < 0 ? beyond : add_rn(1, -beyond);
    n.density = mul_rn(mul_rn(mul_rn(grown, 0x1.988454p-2f), half), rest);
    return n;
}

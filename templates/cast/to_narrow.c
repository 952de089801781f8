//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/*
** x to a float of `width` bits, `fraction` of them below the leading one, to nearest even and
** saturating at `most`. `least` is the exponent of the smallest normal number, biased as in fp32.
** NaN becomes `most`.
**
** Added to a power of two whose last place is the one to keep, |x| is rounded there by fp32 itself.
** Below `least` that place no longer moves, as in denormals.
*/
FN unsigned to_narrow(float x, float most, int width, int fraction, unsigned least)
{
    const float v = clamp(x, most);
    const unsigned e = bits_of(v) & 0x7f800000u;
    const unsigned place = e > least << 23 ? e : least << 23;
    const unsigned anchor = place + ((23u - fraction) << 23);
    const unsigned steps = bits_of(add_rn(magnitude(v), float_of(anchor))) - anchor;
    const unsigned code = steps + (place >> (23 - fraction)) - (least << fraction);

    return code | (bits_of(v) >> (32 - width) & 1u << (width - 1));
}

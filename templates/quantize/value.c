//$ -- SPDX-License-Identifier: Apache-2.0
/* A code's value: with its block's scale, and that of the group. */
//$ if scale.global then
FN float value_of(unsigned code, float sf, float global)
{
    return mul_rn(mul_rn(from_$(element.type)(code$(element.zero)), sf), global);
}
//$ elseif scale.zeros then
//$ once("dequantize/zero_" .. element.type .. ".c")
FN float value_of(unsigned code, unsigned sf)
{
    const int zero = zero_$(element.type)(sf);

    return mul_rn(from_$(element.type)(code, zero), from_$(scale.type)(sf));
}
//$ else
FN float value_of(unsigned code, float sf)
{
    return mul_rn(from_$(element.type)(code$(element.zero)), sf);
}
//$ end

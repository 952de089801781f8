//$ -- SPDX-License-Identifier: Apache-2.0
/* A code's value: with its block's scale, and that of the group. */
//$ if scale.global then
FN float value_of(unsigned code, float sf, float global)
{
    return mul_rn(mul_rn(from_$(element.type)(code$(element.zero)), sf), global);
}
//$ else
FN float value_of(unsigned code, float sf)
{
    return mul_rn(from_$(element.type)(code$(element.zero)), sf);
}
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local most = scale.zeros and "the distance of a block's least and largest value"
//$              or "a block's largest magnitude"
//$ local sf = scale.type == "f32" and "float" or "unsigned int"
//$ if scale.global then
/* From a group's largest magnitude: the stored scale, and the argument of the blocks' rule. */
//$ rule "global"

//$ end
//$ if scale.by_input then
//$ for _, input in ipairs { "bf16", "f16", "f32" } do
/* From $(most) in $(input). */
//$ rule("scale", input)

//$ end
/* The stored scale, and the values' factor. */
FN float scale_of(int input, float amax, $(sf) *sf)
{
    return input == IN_BF16  ? scale_of_bf16(amax, sf)
           : input == IN_F16 ? scale_of_f16(amax, sf)
                             : scale_of_f32(amax, sf);
}
//$ else
/* From $(most): the stored scale, and the values' factor. */
//$ rule "scale"
//$ end

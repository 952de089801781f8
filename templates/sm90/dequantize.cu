//$ -- SPDX-License-Identifier: Apache-2.0
//$ local f16, swapped = wide == "f16", dequantize == "swapped"
//$ if wide == "either" then
//$ once("dequantize/" .. b.type .. "_f16.c")
//$ once "dequantize/permute.c"
//$ once "dequantize/unit_f16.c"
//$ once "dequantize/sampled_f16.c"
//$ end
//$ for _, o in ipairs { a, b } do
//$ if apart and o.bits ~= 4 then
//$ once "dequantize/apart.c"
//$ end
//$ if f16 then
//$ once("dequantize/" .. o.type .. "_f16.c")
//$ once "dequantize/permute.c"
//$ once "dequantize/unit_f16.c"
//$ elseif o.scale then
//$ local wide = o.scale.type == "f32" and "_wide" or ""
//$ local floats = o.type .. (apart and o.bits == 4 and "_apart" or "") .. wide
//$ once("dequantize/" .. (o.integer and "integers" or floats) .. ".c")
//$ once("dequantize/factor_" .. o.scale.type .. ".c")
//$ if o.scale.zeros then once("dequantize/zero_" .. o.type .. ".c") end
//$ if swapped and o.scale.type == "e8m0" and not o.integer then
//$ once("dequantize/twice_e8m0" .. (apart and o.bits == 4 and "_apart" or "") .. ".c")
//$ elseif dequantize ~= "none" and lowered > 0 and o.bits == 4 then
//$ once "dequantize/twice_e4m3_apart.c"
//$ end
//$ end
//$ end

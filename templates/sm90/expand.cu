//$ -- SPDX-License-Identifier: Apache-2.0
//$ local f16, swapped = wide == "f16", expand == "swapped"
//$ if wide == "either" then
//$ once("expand/" .. b.type .. "_f16.c")
//$ once "expand/permute.c"
//$ once "expand/unit_f16.c"
//$ once "expand/sampled_f16.c"
//$ end
//$ for _, o in ipairs { a, b } do
//$ if apart and o.bits ~= 4 then
//$ once "expand/apart.c"
//$ end
//$ if f16 then
//$ once("expand/" .. o.type .. "_f16.c")
//$ once "expand/permute.c"
//$ once "expand/unit_f16.c"
//$ elseif o.scale then
//$ once("expand/" .. o.type .. (apart and o.bits == 4 and "_apart" or "") .. ".c")
//$ once("expand/factor_" .. o.scale.type .. ".c")
//$ if swapped and o.scale.type == "e8m0" then
//$ once("expand/twice_e8m0" .. (apart and o.bits == 4 and "_apart" or "") .. ".c")
//$ elseif expand ~= "none" and lowered > 0 and o.bits == 4 then
//$ once "expand/twice_e4m3_apart.c"
//$ end
//$ end
//$ end

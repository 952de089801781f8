//$ -- SPDX-License-Identifier: Apache-2.0
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
//$ if factors == "row" then
//$   if arch == "sm_90a" then
factors_prefetch(&factors, &t, $(row), $(d_rows), lane);
//$   end
//$ elseif factors ~= "none" and factors ~= "squares" and factors ~= "lines" then
const struct group_scale group_scale = scale_of_group(&factors, &t);
//$ end

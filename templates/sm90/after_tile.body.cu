//$ -- SPDX-License-Identifier: Apache-2.0
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
//$ local extra = addend == "read" and " &scale, added," or ""
//$ if epilogue == "activate" or epilogue == "copies" or epilogue == "gradient" or
//$    epilogue == "gradient_copies" then
//$   extra = " &finish,"
//$ end
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local inside = back and arch == "sm_100f" -- sums are loaded there
//$ if inside and factors ~= "none" then
//$   extra = extra .. (factors == "row" and " &factors," or " &group_scale,")
//$ elseif factors == "row" then
scale_sums(sum, &factors, &t, $(row), $(d_rows), lane);
//$ elseif factors ~= "none" and factors ~= "squares" and factors ~= "lines" and
//$        not params.extra_k then
scale_sums(sum, &group_scale);
//$ end
//$ local late = rolled and epilogue == "activate" and schedule == "cooperative"
store_tile(sum, &slabs, &t, &maps,$(extra) $(row), $(d_rows), $(late and "lane_again()" or "lane"));

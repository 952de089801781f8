//$ -- SPDX-License-Identifier: Apache-2.0
//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ if addend == "read" then
struct addend addend;
addend.c = c;
addend.c_pointers = c_pointers;
addend.stride = c_stride;
addend.group_stride = c_group_stride;
addend.columns = n;
//$ if epilogue == "scale" then
addend.alpha = alpha;
addend.beta = beta;
addend.step = scalar_step;
//$ end
//$ elseif epilogue == "alpha" then
factors.alpha = alpha;
factors.step = scalar_step;
//$ end
//$ if follows or back then
struct follow follow;
follow.alpha = alpha;
follow.step = scalar_step;
follow.probability = probability;
follow.columns = n;
//$ if follows then
follow.bias = bias;
follow.saved = saved;
//$ else
follow.rows = m;
follow.groups = groups;
follow.row_partials = row_partials;
follow.partials = partials;
//$ end
//$ if activation == "clamped_swiglu" then
follow.limit = limit;
follow.slope = slope;
follow.shift = shift;
//$ end
//$ if epilogue == "copies" or epilogue == "gradient_copies" then
//$ include "sm90/copies_given.body.cu"
//$ end
//$ if follows and operands == "halves" then
maps.half = n / 2;
maps.twice = n;
//$ end
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = form == "backward"
//$ local in_two, d_two = back and "0" or "two", back and "two" or "0"
const int two = GATED >> activation & 1;
const int run = interleave ? interleave : k;

work.in = (const float *)in;
work.d = ($(input.type)_element *)d;
work.saved = ($(input.type)_element *)saved;
work.in_stride = in_stride;
work.d_stride = d_stride;
work.saved_stride = saved_stride;
work.in_how = how_of(in, in_stride * 4, k, $(in_two), run);
work.d_how = how_of(d, d_stride * $(input.bits // 8), k, $(d_two), run);
work.saved_how = how_of(saved, saved_stride * $(input.bits // 8), k, two, run);
work.probability = probability;
work.activation = activation;
work.limit = limit;
work.slope = slope;
work.shift = shift;
//$ if back then
work.partials = partials;
work.row_partials = row_partials;
work.rows = m;
//$ else
work.bias = bias;
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
work.d = ($(d.type)_element *)d;
work.saved = ($(d.type)_element *)saved;
work.d_stride = d_stride;
work.saved_stride = saved_stride;
work.d_how = how_of(d, d_stride * $(d.bytes), order.results, 0, 1);
work.saved_how = how_of(saved, saved_stride * $(d.bytes), order.results, order.two, order.run);
work.bias = bias ? bias + (long long)t.group * n : 0;
work.probability = probability;
work.alpha = alpha ? alpha[t.group * scalar_step] : 1;
work.activation = activation;
work.limit = limit;
work.slope = slope;
work.shift = shift;

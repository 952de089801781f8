//$ -- SPDX-License-Identifier: Apache-2.0
.follow = {
    .columns = n,
    .results = GATED >> activation & 1 ? n / 2 : n,
    .which = activation,
    .interleave = interleave,
    .limit = limit,
    .slope = slope,
    .shift = shift,
    .alpha = alpha ? alpha + i * scalar_step : 0,
    .bias = bias ? bias + (long long)i * n : 0,
    .probability = probability ? probability + start : 0,
//$ if epilogue ~= "copies" then
    .d = place(d, 0, i, start * d_stride, sizeof(d_element)),
//$ end
    .saved = place(saved, 0, i, start * saved_stride, sizeof(d_element)),
    .d_row = d_stride,
    .saved_row = saved_stride,
},

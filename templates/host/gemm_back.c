//$ -- SPDX-License-Identifier: Apache-2.0
.back = {
    .columns = n,
    .which = activation,
    .interleave = interleave,
    .limit = limit,
    .slope = slope,
    .shift = shift,
    .alpha = alpha ? alpha + i * scalar_step : 0,
    .probability = probability ? probability + start : 0,
//$ if epilogue ~= "gradient_copies" then
    .d = place(d, 0, i, start * d_stride, sizeof(d_element)),
//$ end
    .saved = place(saved, 0, i, start * saved_stride, sizeof(d_element)),
    .d_row = d_stride,
    .saved_row = saved_stride,
    .row_partials = row_partials ? row_partials + start : 0,
    .rows = m,
    .partials = partials,
    .first = $(template == "host/gemm.c" and "runs" or "g[0].first") * 4,
    .strips = (m + 127ll * groups) / 128 * 4,
},

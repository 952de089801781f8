//$ -- SPDX-License-Identifier: Apache-2.0
if (w->bias) {
#pragma unroll
    for (int i = 0; i < 2 * EIGHT; i++)
        x[i / EIGHT][i % EIGHT] = add_rn(x[i / EIGHT][i % EIGHT],
                                         mul_rn(bias[i / EIGHT][i % EIGHT], of_bias));
}
if (w->saved)
    store_$(type)(w->saved + row * w->saved_stride, x, c, w->saved_how);
switch (w->activation) {
//$ for i in ipairs(activations) do
case $(i):
    activate_eight($(i), x, w, weight);
    break;
//$ end
}
store_$(type)(w->d + row * w->d_stride, x, &result, w->d_how);

//$ -- SPDX-License-Identifier: Apache-2.0
/* Value `i` of the result, in its type. */
static void store_out(const struct work *w, long long i, float x)
{
    switch (w->input) {
    case IN_BF16:
        ((unsigned short *)w->out)[i] = (unsigned short)to_bf16(x);
        break;
    case IN_F16:
        ((unsigned short *)w->out)[i] = (unsigned short)to_f16(x);
        break;
    default:
        ((float *)w->out)[i] = x;
    }
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ local pair = input.type == "f32" and "float2" or "unsigned"
//$ include "cast/gated.c"

/* Two neighbours at once, or one by one where they are none. */
template <int PAIRED> FN packed load_pair(const in_element *one, const in_element *two)
{
    if (!PAIRED)
        return pack(*one, *two);
    const $(pair) both = *(const $(pair) *)one;

    return $(input.bits == 16 and "both" or "pack(both.x, both.y)");
}

/* The columns of the operands of two neighbouring features in a row. */
struct operands {
    long long a[2], b[2];
};

/* Those of one feature, in a row of `features` results. */
FN void find_operands(const struct source *s, struct operands *o, int i, int f, int features)
{
    const int run = s->interleave;

    o->a[i] = run ? (long long)f / run * 2 * run + f % run : f;
    o->b[i] = run ? o->a[i] + run : o->a[i] + features;
    if (!(GATED >> s->activation & 1))
        o->a[i] = o->b[i] = f;
}

//$ -- SPDX-License-Identifier: Apache-2.0
/* An element of D or C is one word: the bits of an fp32. */
enum { PER_WORD = 1 };

FN unsigned int pack(const float *x)
{
    return __float_as_uint(x[0]);
}

FN void unpack(float *x, unsigned int word)
{
    x[0] = __uint_as_float(word);
}

//$ -- SPDX-License-Identifier: Apache-2.0
//$ for _, x in ipairs { { "a", a }, { "b", b } } do
//$   local name, s = x[1], x[2].scale
//$   local lines = s.lines > 1 and "row / " .. s.lines or "row"
//$   local step = s.order == "columns" and " * p->stride" or ""
//$   if s.type == "f32" then
/*
** The scale of row `row` of a group's $(name) for block `block` of k, for four parts of it: a power
** of two, of which a byte has the exponent; NaN of any other number, and 0 from `blocks` on.
*/
//$   else
/*
** The scales of row `row` of a group's $(name) for four blocks of k from `block` on, a multiple of
** 4: a byte each, 0 where there is none. Blocks below `blocks` have one.
*/
//$   end
FN unsigned int four_scales_$(name)(const void *sf, const struct scale_place *p, long long row,
                              int block, int blocks)
{
    const long long i = p->row + $(lines), j = p->column + block;
//$   if s.order == "rows" then
    const long long at = i * p->stride + j;
//$   elseif s.order == "columns" then
    const long long at = j * p->stride + i;
//$   else
    /* tiles of 128 x 4 */
    const long long at = i / 128 * p->stride + j / 4 * 512 + i % 32 * 16 + i % 128 / 32 * 4;
//$   end
//$   if s.type == "f32" then
    const unsigned int *from = (const unsigned int *)sf + p->base + at;
    const unsigned int bits = block < blocks ? __ldg(from) : 0;
    const unsigned int least = 0x400000; /* 2^-127 */

    return (bits & 0x807fffff && bits != least ? 0xff : bits >> 23) * 0x01010101u;
}

//$   else
    const unsigned char *from = (const unsigned char *)sf + p->base + at;
    const int there = blocks - block;
    unsigned int word = 0;

//$   if s.order ~= "columns" then
    if (there >= 4 && (unsigned long long)from % 4 == 0)
        return __ldg((const unsigned int *)from);
//$   end
#pragma unroll
    for (int b = 0; b < 4; b++)
        if (b < there)
            word |= (unsigned int)__ldg(from + b$(step)) << 8 * b;
    return word;
}

//$   end
//$ end

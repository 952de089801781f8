/*
** Codes of few bits times the scale of their block, rounded to bf16, two to a word: what rounding
** the fp32 product gives, bit for bit, for every code and every scale. A scale of NaN makes NaN of
** zeros, too.
*/
//$ -- elements and types of scales that operands have
//$ local elements, types = {}, {}
//$ for _, o in ipairs { a, b } do
//$   if o.scale then
//$     elements[o.type], types[o.scale.type] = true, true
//$   end
//$ end
//$ once "cast/to_bf16.c"
//$ if types.e8m0 then
//$   once "cast/from_e8m0.c"
//$ end
//$ if arch == "host" then
//$   once "cast/from_bf16.c"
//$   once "cast/from_e4m3.c"
//$   once "cast/from_e5m2.c"
/* Bytes of x, 0 to 3, and y, 4 to 7, by four digits; 8 on top: the byte's sign, eight times. */
FN unsigned permute(unsigned x, unsigned y, unsigned digits)
{
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;

    for (int i = 0; i < 4; i++) {
        const unsigned digit = digits >> 4 * i & 15;
        const unsigned byte = (unsigned)(both >> 8 * (digit & 7)) & 255;
        result |= (digit < 8 ? byte : byte >> 7 ? 255u : 0u) << 8 * i;
    }
    return result;
}

FN unsigned multiply_bf16x2(unsigned x, unsigned y)
{
    return to_bf16_x2(mul_rn(from_bf16(x & 0xffff), from_bf16(y & 0xffff)),
                      mul_rn(from_bf16(x >> 16), from_bf16(y >> 16)));
}

/* The two values whose codes a 16-bit word holds. */
FN void pair_e4m3(unsigned codes, float *lo, float *hi)
{
    *lo = from_e4m3(codes & 255);
    *hi = from_e4m3(codes >> 8 & 255);
}

FN void pair_e5m2(unsigned codes, float *lo, float *hi)
{
    *lo = from_e5m2(codes & 255);
    *hi = from_e5m2(codes >> 8 & 255);
}
//$ else
/* Bytes of x, 0 to 3, and y, 4 to 7, by four digits; 8 on top: the byte's sign, eight times. */
FN unsigned permute(unsigned x, unsigned y, unsigned digits)
{
    unsigned result;

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(digits));
    return result;
}

//$ if elements.e2m1 then
FN unsigned multiply_bf16x2(unsigned x, unsigned y)
{
    unsigned product;

    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
    return product;
}

//$ end
//$ local wanted = { e5m2 = elements.e5m2 }
//$ wanted.e4m3 = elements.e4m3 or elements.e2m3 or elements.e3m2 or types.e4m3
//$ for _, type in ipairs { "e4m3", "e5m2" } do
//$ if wanted[type] then
/* The two values whose codes a 16-bit word holds. */
FN void pair_$(type)(unsigned codes, float *lo, float *hi)
{
    asm("{\n"
        ".reg .b32 both;\n"
        ".reg .b16 lo, hi;\n"
        "cvt.rn.f16x2.$(type)x2 both, %2;\n"
        "mov.b32 {lo, hi}, both;\n"
        "cvt.f32.f16 %0, lo;\n"
        "cvt.f32.f16 %1, hi;\n"
        "}" : "=f"(*lo), "=f"(*hi) : "h"((unsigned short)codes));
}

//$ end
//$ end
//$ end
//$ if types.e8m0 then
/* A scale: 2^(code - 127). */
FN float factor_e8m0(unsigned code)
{
    return from_e8m0(code);
}

//$ end
//$ if types.e4m3 then
/* A scale. */
FN float factor_e4m3(unsigned code)
{
    float factor, none;

    pair_e4m3(code, &factor, &none);
    return factor;
}

//$ end
//$ if elements.e2m1 then
/*
** Eight codes, the first in the lowest bits. Their magnitudes are looked up, the upper bytes of
** bf16 and the lower ones; the sign is every fourth bit. A factor is exact in bf16.
*/
FN void expand_e2m1(unsigned pair[4], unsigned codes, float factor)
{
    const unsigned twice = permute(bits_of(factor), 0, 0x3232);
    const unsigned magnitudes = codes & 0x77777777, even = codes << 4;

    for (int i = 0; i < 2; i++) {
        const unsigned digits = magnitudes >> 16 * i;
        const unsigned signs = permute(codes, even, i ? 0xbfae : 0x9d8c) & 0x80808080;
        const unsigned upper = permute(0x3f3f3f00, 0x40404040, digits) | signs;
        const unsigned lower = permute(0xc0800000, 0xc0804000, digits);

        pair[2 * i] = multiply_bf16x2(permute(lower, upper, 0x5140), twice);
        pair[2 * i + 1] = multiply_bf16x2(permute(lower, upper, 0x7362), twice);
    }
}

//$ end
//$ -- how the bits become those of another type, and the power of two that they are then too small
//$ local becomes = {
//$   e4m3 = { "codes", "e4m3" },
//$   e5m2 = { "codes", "e5m2" },
//$   e2m3 = { "(codes & 0x1f1f1f1f) | (codes & 0x20202020) << 2", "e4m3", "0x1p6f" },
//$   e3m2 = { "(codes & 0x1f1f1f1f) << 1 | (codes & 0x20202020) << 2", "e4m3", "0x1p4f" },
//$ }
//$ for _, type in ipairs { "e4m3", "e5m2", "e2m3", "e3m2" } do
//$ local form = becomes[type]
//$ if elements[type] then
/* Four codes, the first in the lowest bits. */
FN void expand_$(type)(unsigned pair[2], unsigned codes, float factor)
{
    const unsigned bits = $(form[1]);

    for (int i = 0; i < 2; i++) {
        float lo, hi;

        pair_$(form[2])(bits >> 16 * i, &lo, &hi);
//$ if form[3] then
        lo = mul_rn(lo, $(form[3]));
        hi = mul_rn(hi, $(form[3]));
//$ end
        pair[i] = to_bf16_x2(mul_rn(lo, factor), mul_rn(hi, factor));
    }
}

//$ end
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Codes of few bits become $(dequantized) in registers, four at a time: codes 0 and 1 in one word,
** 2 and 3 in the next. Their bits are put where 16-bit floats have them, and multiplied by the
** power of two between the exponents' biases, which is exact; denormals come out exact.
*/
FN unsigned int multiply_f16x2(unsigned int x, unsigned int factor)
{
    unsigned int product;

    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(factor));
    return product;
}

FN unsigned int subtract_f16x2(unsigned int x, unsigned int y)
{
    unsigned int difference;

    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(x), "r"(y));
    return difference;
}

/* Bytes 0 and 1, or 2 and 3, of a word as the upper bytes of two halves. */
FN unsigned int spread(unsigned int word, int upper)
{
    return upper ? (word >> 8 & 0xff00) | (word & 0xff000000)
                 : (word << 8 & 0xff00) | (word & 0xff00) << 16;
}

//$ include "sm80/shared.cu"

/* The values of two f16, each times its scale, to $(dequantized). */
FN unsigned int scale_each(unsigned int pair, float first, float second)
{
    float low, high;
    unsigned int word;

    asm("cvt.f32.f16 %0, %1;" : "=f"(low) : "h"((unsigned short)pair));
    asm("cvt.f32.f16 %0, %1;" : "=f"(high) : "h"((unsigned short)(pair >> 16)));
    asm("cvt.rn.$(dequantized)x2.f32 %0, %1, %2;"
        : "=r"(word) : "f"(__fmul_rn(high, second)), "f"(__fmul_rn(low, first)));
    return word;
}

/* The same of one scale for both. */
FN unsigned int scale_pair(unsigned int pair, float scale)
{
    return scale_each(pair, scale, scale);
}

/* 4 values of a row of a stage that are $(dequantized) already, in the position of 4 codes. */
FN void load_values(unsigned int *pair, unsigned int row, int step, int q)
{
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(pair[0]), "=r"(pair[1]) : "r"(row + 32 * step + 8 * q) : "memory");
}

FN void store_shared_half(unsigned int to, unsigned short half)
{
    asm volatile("st.shared.u16 [%0], %1;" : : "r"(to), "h"(half) : "memory");
}

//$ -- sign in the upper byte, how far left f16's is; magnitude, and how far; f16 of 2^(15 - bias)
//$ local formats = {
//$   e2m1 = { 0x0800, "<< 4", 0x0700, "<< 1", 0x7400 },
//$   e2m3 = { 0x2000, "<< 2", 0x1f00, ">> 1", 0x7400 },
//$   e3m2 = { 0x2000, "<< 2", 0x1f00, "<< 0", 0x6c00 },
//$   e4m3 = { 0x8000, "<< 0", 0x7f00, ">> 1", 0x5c00 },
//$ }
//$ for _, x in ipairs { { "a", a }, { "b", b } } do
//$   local name, o = x[1], x[2]
//$   local type, f = o.type, formats[o.type]
//$   local twice = function (x) return string.format("0x%08x", x << 16 | x) end
//$   if o.scale then
//$   if o.major == "mn" then
/* 4 codes of b, $(type), from as many rows of a stage: those of lane `q` of four in step `step`. */
FN unsigned int load_codes_b(unsigned int stage, int column, int step, int q)
{
    const unsigned int from =
        stage + (16 * step + 4 * q) * B_PITCH + column$(o.bits == 4 and " / 2" or "");
    unsigned int codes = 0;

#pragma unroll
    for (int i = 0; i < 4; i++)
//$     if o.bits == 4 then
        codes |= (load_shared_byte(from + i * B_PITCH) >> column % 2 * 4 & 15) << 8 * i;
//$     else
        codes |= load_shared_byte(from + i * B_PITCH) << 8 * i;
//$     end
    return codes;
}
//$   else
/* 4 codes of $(name), $(type), from a row of a stage: those of lane `q` of four in step `step`. */
FN unsigned int load_codes_$(name)(unsigned int row, int step, int q)
{
//$   if o.bits == 4 then
    const unsigned int codes = load_shared_half(row + 8 * step + 2 * q);

    return (codes & 15) | (codes & 0xf0) << 4 | (codes & 0xf00) << 8 | (codes & 0xf000) << 12;
//$   else
    return load_shared_word(row + 16 * step + 4 * q);
//$   end
}
//$   end

//$   local zeros = o.scale.zeros
//$   if zeros then
/* As f16, less the zero points of the first two codes and of the others: each is one. */
FN void halves_$(name)(unsigned int *pair, unsigned int codes, unsigned int first,
                       unsigned int last)
{
//$   else
/* As f16: each of its values is one. */
FN void halves_$(name)(unsigned int *pair, unsigned int codes)
{
//$   end
#pragma unroll
    for (int i = 0; i < 2; i++) {
//$   if o.integer then
//$     -- the bits that make them positive, and the code that then stands for 0
//$     local signs = { i8 = { "0x80808080", 128 }, i4 = { "0x08080808", 8 } }
//$     local sign = signs[type] or { nil, o.scale.zero }
        /* 1024 and an integer below that are the same bits; all are positive codes first. */
        const unsigned int byte = spread(codes$(sign[1] and " ^ " .. sign[1] or ""), i) >> 8;
//$     local zero = zeros and "0x64006400 + (i ? last : first)" or twice(0x6400 + sign[2])
        pair[i] = subtract_f16x2(byte | 0x64006400, $(zero));
//$   elseif type == "e5m2" then
        pair[i] = spread(codes, i); /* its upper half, NaN and infinity too */
//$   else
        const unsigned int byte = spread(codes, i);
        const unsigned int sign = (byte & $(twice(f[1]))) $(f[2]);
        const unsigned int bits = (byte & $(twice(f[3]))) $(f[4]);
        pair[i] = multiply_f16x2(bits, $(twice(f[5]))) | sign;
//$     if type == "e4m3" then
        const unsigned int nan = spread(__vcmpeq4(codes & 0x7f7f7f7f, 0x7f7f7f7f), i);
        pair[i] |= (nan | nan >> 8) & 0x7fff7fff;
//$     end
//$   end
    }
}

//$   if o.scale.of_values then
//$     local of = o.scale.span == "block" and "their block" or "their " .. o.scale.span
//$     if o.major == "mn" and o.scale.lines < 4 then
//$       if zeros then
/* Each less its own zero point, and times its own scale. */
FN void dequantize_each_b(unsigned int *pair, unsigned int codes, const unsigned int *word)
{
    float scale[4];
    unsigned int zero[4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        scale[i] = from_$(o.scale.type)(word[i]);
        zero[i] = zero_$(type)(word[i]);
    }
    halves_b(pair, codes, zero[0] | zero[1] << 16, zero[2] | zero[3] << 16);
//$       else
/* Each times its own scale. */
FN void dequantize_each_b(unsigned int *pair, unsigned int codes, const float *scale)
{
    halves_b(pair, codes);
//$       end
    pair[0] = scale_each(pair[0], scale[0], scale[1]);
    pair[1] = scale_each(pair[1], scale[2], scale[3]);
}

//$     end
//$     if zeros then
/* Each less the zero point of $(of), and times its scale. */
FN void dequantize_scaled_$(name)(unsigned int *pair, unsigned int codes, unsigned int word)
{
    const float scale = from_$(o.scale.type)(word);
    const unsigned int zero = zero_$(type)(word) * 0x10001;

    halves_$(name)(pair, codes, zero, zero);
//$     else
/* Each times the scale of $(of). */
FN void dequantize_scaled_$(name)(unsigned int *pair, unsigned int codes, float scale)
{
    halves_$(name)(pair, codes);
//$     end
    pair[0] = scale_pair(pair[0], scale);
    pair[1] = scale_pair(pair[1], scale);
}

//$   else
FN void dequantize_$(name)(unsigned int *pair, unsigned int codes)
{
    halves_$(name)(pair, codes);
//$     if dequantized == "bf16" then
    pair[0] = scale_pair(pair[0], 1);
    pair[1] = scale_pair(pair[1], 1);
//$     end
}

//$   end
//$   end
//$ end

//$ -- SPDX-License-Identifier: Apache-2.0
/* Each piece over an array; exported as each_NAME. */
//$ include "begin.cu"

//$ local narrow = { "e4m3", "e5m2", "e2m3", "e3m2", "e2m1" }
//$ local all = { "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "i8", "i4", "u4", "u8", "bf16", "f16" }
//$ if part == "nearest" then
//$   local zeros = { u4 = ", 8", u8 = ", 77" } -- the codes that stand for 0
//$   for _, type in ipairs(all) do
//$     local zero = zeros[type] or ""
//$     once("cast/to_" .. type .. ".c")
ENTRY each_to_$(type)(const float *x, unsigned *code, long count)
{
    EACH(i, count) code[i] = to_$(type)(x[i]$(zero));
}

ENTRY each_to_$(type)_x2(const float *x, unsigned *code, long count)
{
    EACH(i, count) code[i] = to_$(type)_x2(x[2 * i], x[2 * i + 1]$(zero));
}

//$     once("cast/from_" .. type .. ".c")
ENTRY each_from_$(type)(const unsigned *code, float *x, long count)
{
    EACH(i, count) x[i] = from_$(type)(code[i]$(zero));
}

//$   end
//$   once "cast/to_f32.c"
//$   once "cast/from_f32.c"
ENTRY each_f32(const float *x, float *y, long count)
{
    EACH(i, count) y[i] = to_f32(from_f32(x[i]));
}

//$   once "cast/from_e8m0.c"
//$   once "cast/e8m0.c"
ENTRY each_from_e8m0(const unsigned *code, float *x, long count)
{
    EACH(i, count) x[i] = from_e8m0(code[i]);
}

ENTRY each_e8m0_multiplier(const unsigned *code, float *x, long count)
{
    EACH(i, count) x[i] = e8m0_multiplier(code[i]);
}

ENTRY each_e8m0_up(const float *x, unsigned *code, long count)
{
    EACH(i, count) code[i] = e8m0_up(x[i]);
}

ENTRY each_e8m0_floor(const float *x, unsigned *code, long count)
{
    EACH(i, count) code[i] = e8m0_floor(x[i]);
}

//$ elseif part == "chance" then
//$   once "cast/random.c"
/* 16 bytes for each pair of seed and counter. */
ENTRY each_philox(const unsigned long long *in, unsigned char *out, long count)
{
    EACH(i, count) {
        const struct philox random = philox(in[2 * i], in[2 * i + 1]);
        for (int j = 0; j < 16; j++)
            out[16 * i + j] = (unsigned char)random_byte(&random, j);
    }
}

//$   for _, type in ipairs(narrow) do
//$     once("cast/to_" .. type .. "_stochastic.c")
/* Every value with each of the 256 bytes. */
ENTRY each_to_$(type)_stochastic(const float *x, unsigned *code, long count)
{
    EACH(i, count * 256) code[i] = to_$(type)_stochastic(x[i / 256], (unsigned)(i % 256));
}

//$   end
//$   once "cast/hadamard.c"
ENTRY each_hadamard16(const float *x, float *y, long count)
{
    EACH(i, count) {
        float v[16];

        for (int j = 0; j < 16; j++)
            v[j] = x[16 * i + j];
        hadamard16(v, 0xd7e8);
        for (int j = 0; j < 16; j++)
            y[16 * i + j] = v[j];
    }
}

//$ elseif part == "math" then
//$   for _, name in ipairs { "sigmoid", "tanh" } do
//$     once("cast/" .. name .. ".c")
ENTRY each_$(name)(const float *x, float *y, long count)
{
    EACH(i, count) y[i] = $(name)_f32(x[i]);
}

//$   end
/* x * y + z of each three. */
ENTRY each_fma(const float *x, float *y, long count)
{
    EACH(i, count) y[i] = fma_rn(x[3 * i], x[3 * i + 1], x[3 * i + 2]);
}

//$ elseif part == "dequantize" then
//$   for _, scale in ipairs { "e8m0", "e4m3" } do
//$     once("dequantize/factor_" .. scale .. ".c")
//$     for i = 1, #narrow + 1 do
//$       local type = narrow[i] or "e2m1_apart"
//$       once("dequantize/" .. type .. ".c")
//$       local words = i >= #narrow and 4 or 2
/* Words of codes, each followed by its scale, as pairs of bf16. */
ENTRY each_dequantize_$(type)_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        dequantize_$(type)(pair + $(words) * i, in[2 * i], factor_$(scale)(in[2 * i + 1]));
}

//$       local near = type == "e2m1_apart" and "e8m0_apart" or "e8m0"
//$       if scale == "e8m0" then
//$         once("dequantize/twice_" .. near .. ".c")
/* The same by the short form, of scales that have one. */
ENTRY each_twice_$(type)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        dequantize_$(type)_twice(pair + $(words) * i, in[2 * i],
                       twice_$(near)(0x10001 * (in[2 * i + 1] < MOST_$(near:upper())
                                                   ? in[2 * i + 1] : MOST_$(near:upper()))));
}

//$       end
//$       if scale == "e4m3" and type == "e2m1_apart" then
//$         once "dequantize/twice_e4m3_apart.c"
/* The same with scales of E4M3, 2^9 too small. */
ENTRY each_low_e2m1_apart(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        dequantize_e2m1_apart_twice(pair + 4 * i, in[2 * i], twice_e4m3_apart(in[2 * i + 1]));
}

//$       end
//$     end
//$   end
//$   once "dequantize/e2m1_byte.c"
//$   for _, scale in ipairs { "e8m0", "e4m3" } do
/* The same byte by byte. */
ENTRY each_dequantize_e2m1_byte_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++)
            pair[4 * i + j] = dequantize_e2m1_byte(in[2 * i] >> 8 * j & 255,
                                                   factor_$(scale)(in[2 * i + 1]));
}

/* By the short form, of scales that have one, or that are 2^9 too small. */
//$     local which = scale == "e8m0" and "twice" or "low"
ENTRY each_$(which)_e2m1_byte(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++)
//$     if scale == "e8m0" then
            pair[4 * i + j] = dequantize_e2m1_byte_twice(
                in[2 * i] >> 8 * j & 255,
                twice_e8m0_apart(0x10001 * (in[2 * i + 1] < MOST_E8M0_APART ? in[2 * i + 1]
                                                                           : MOST_E8M0_APART)));
//$     else
            pair[4 * i + j] = dequantize_e2m1_byte_twice(in[2 * i] >> 8 * j & 255,
                                                         twice_e4m3_apart(in[2 * i + 1]));
//$     end
}

//$   end
//$   for _, scale in ipairs { "bf16", "f16", "f32" } do
//$     local wide = scale == "f32" and "_wide" or ""
//$     once("dequantize/factor_" .. scale .. ".c")
//$     local stored = scale ~= "f32"
//$     if stored then once "dequantize/zero_u4.c" end
//$     local zero = stored and "zero_u4(in[3 * i + 1])" or "in[3 * i + 2] % 15"
//$     once "dequantize/integers.c"
//$     for _, apart in ipairs { "", "_apart" } do
/* Words of codes, each followed by its scale and the code that stands for 0, which a scale of 16
   bits has in the upper half of its word: as i4, then as u4. */
ENTRY each_integers$(apart)_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count) {
        const float factor = factor_$(scale)(in[3 * i + 1]);

        dequantize_i4$(apart .. wide)(pair + 8 * i, in[3 * i], factor);
        dequantize_u4$(apart .. wide)(pair + 8 * i + 4, in[3 * i], factor, $(zero));
    }
}

//$     end
/* The same byte by byte. */
ENTRY each_integers_byte_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++) {
            const float factor = factor_$(scale)(in[3 * i + 1]);
            const unsigned codes = in[3 * i] >> 8 * j & 255;

            pair[8 * i + j] = dequantize_i4_byte$(wide)(codes, scale_of_i4(factor));
            pair[8 * i + 4 + j] = dequantize_u4_byte$(wide)(codes, scale_of_u4(factor, $(zero)));
        }
}

//$   end
//$   once "dequantize/integers_f16.c"
/* Byte by byte, as integers_byte has them, of scales of few digits. */
ENTRY each_integers_short_bf16(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++) {
            const float factor = factor_bf16(in[3 * i + 1]);
            const unsigned codes = in[3 * i] >> 8 * j & 255;

            pair[8 * i + j] = dequantize_i4_byte_short(codes, scale_of_i4(factor));
            pair[8 * i + 4 + j] =
                dequantize_u4_byte_short(codes, scale_of_u4(factor, zero_u4(in[3 * i + 1])));
        }
}

//$   for _, scale in ipairs { "bf16", "f16", "f32" } do
//$     local wide = scale == "f16" and "" or "_wide"
//$     local zero = scale ~= "f32" and "zero_u4(in[3 * i + 1])" or "in[3 * i + 2] % 15"
/* The same as f16, of any scale. */
ENTRY each_integers_half_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++) {
            const float factor = factor_$(scale)(in[3 * i + 1]);
            const unsigned codes = in[3 * i] >> 8 * j & 255;

            pair[8 * i + j] = dequantize_i4_byte_f16$(wide)(codes, scale_of_i4_f16(factor));
            pair[8 * i + 4 + j] =
                dequantize_u4_byte_f16$(wide)(codes, scale_of_u4_f16(factor, $(zero)));
        }
}

//$   end
//$   once "dequantize/e2m1_half.c"
//$   once "dequantize/e4m3_half.c"
//$   for _, scale in ipairs { "e8m0", "e4m3" } do
/* Words of codes, each followed by its scale, as pairs of f16. */
ENTRY each_half_e4m3_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count) dequantize_e4m3_half(pair + 2 * i, in[2 * i], factor_$(scale)(in[2 * i + 1]));
}

ENTRY each_half_e2m1_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++)
            pair[4 * i + j] = scale_e2m1_half(bits_e2m1_half_byte(in[2 * i] >> 8 * j & 255),
                                              factor_$(scale)(in[2 * i + 1]));
}

/* By the short form, of scales that have one, or that are 2^9 too small; codes four apart. */
ENTRY each_half_twice_$(scale)(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count)
        for (int j = 0; j < 4; j++) {
//$     if scale == "e8m0" then
            const unsigned most = in[2 * i + 1] < MOST_E8M0_APART ? in[2 * i + 1] : MOST_E8M0_APART;
//$     else
            const unsigned most = in[2 * i + 1];
//$     end

            pair[4 * i + j] =
                multiply_f16x2(bits_e2m1_half(in[2 * i], j), twice_$(scale)_half(most));
        }
}

//$   end
//$   once "dequantize/e4m3_wide.c"
/* Words of codes, each followed by its scale. */
ENTRY each_e4m3_wide(const unsigned *in, unsigned *pair, long count)
{
    EACH(i, count) dequantize_e4m3_wide(pair + 2 * i, in[2 * i], factor_f32(in[2 * i + 1]));
}

//$   once "dequantize/e4m3_f16.c"
//$   once "dequantize/unit_f16.c"
/*
** Words of codes as f16 under a scale, relative to the largest one, `most`; and what a product with
** itself is to be multiplied by, and whether the scale may be had.
*/
ENTRY each_dequantize_e4m3_f16(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count)
    {
        const unsigned low = low_f16(in[3 * i + 2]);

        dequantize_e4m3_f16(out + 4 * i, in[3 * i],
                            twice_f16(in[3 * i + 1] * 0x10001, low * 0x10001));
        out[4 * i + 2] = bits_of(unit_f16(low, low));
        out[4 * i + 3] = fits_f16(in[3 * i + 2], in[3 * i + 1]);
    }
}

//$   once "dequantize/sampled_f16.c"
//$   once "dequantize/permute.c"
/*
** Four scales of a tile whose first ones' largest is given, as the kernels read them: each as
** f16 in both halves of a word; whether they were near; whether one is too large; and the largest
** code that becomes 0.
*/
ENTRY each_sampled_f16(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count) {
        const unsigned low = sampled_f16(in[2 * i + 1]), near = near_f16(low);
        const unsigned beyond = beyond_f16(in[2 * i] - near);
        unsigned over = 0, four = four_f16(in[2 * i] - near);

        if (beyond)
            four = far_f16(in[2 * i], low_of_near(near), &over);
        for (unsigned j = 0; j < 4; j++)
            out[7 * i + j] = permute(four, 0, j * 0x1010 + 0x0404);
        out[7 * i + 4] = !beyond;
        out[7 * i + 5] = over;
        out[7 * i + 6] = low;
    }
}

/* Of four scales side by side: may one be beyond those that have a short form? */
ENTRY each_beyond_apart(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count) out[i] = beyond_e8m0_apart(in[i]);
}

//$   once "dequantize/requantize_e2m1.c"
//$   once "dequantize/requantize_scale.c"
/*
** A word of codes, their scale of e8m0, and the largest that shares a scale with it: words of e4m3,
** the bits of their scale, and whether all fit.
*/
ENTRY each_requantize_e2m1(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count) {
        const int exponent = requantize_exponent((int)in[3 * i + 2]);
        const int r = (int)in[3 * i + 1] - 127 - exponent;
        const struct magnitudes m = magnitudes_of(r);

        requantize_e2m1(out + 4 * i, in[3 * i], &m);
        out[4 * i + 2] = bits_of(requantize_scale(exponent));
        out[4 * i + 3] = requantize_always(r) ||
                         (!requantize_nan(out[4 * i]) && !requantize_nan(out[4 * i + 1]));
    }
}

//$   once "dequantize/rebase_e2m1.c"
/*
** A word of codes, the scales of 128 values, and which of these is its own: words of e4m3 as near
** scales make them, unless one is far; as any do; the bits of the factor of their sums; whether one
** is far.
*/
ENTRY each_rebase_e2m1(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count) {
        const unsigned base = rebase_base(in[3 * i + 1]);
        const unsigned all = rebase_distances(in[3 * i + 1], base);
        const unsigned distance = all >> in[3 * i + 2] % 4 * 8 & 255, far = rebase_far(all);
        const struct magnitudes any = rebase_any(distance);
        const struct magnitudes m = far ? any : rebase_near(distance);

        requantize_e2m1(out + 6 * i, in[3 * i], &m);
        requantize_e2m1(out + 6 * i + 2, in[3 * i], &any);
        out[6 * i + 4] = bits_of(rebase_factor(base));
        out[6 * i + 5] = far != 0;
    }
}

//$   once "dequantize/apart.c"
/* Eight bytes, and eight halves of words, with those that are 4 apart side by side. */
ENTRY each_codes_apart(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count) {
        unsigned word[2] = { in[2 * i], in[2 * i + 1] };

        codes_apart(word);
        out[2 * i] = word[0];
        out[2 * i + 1] = word[1];
    }
}

ENTRY each_pairs_apart(const unsigned *in, unsigned *out, long count)
{
    EACH(i, count) {
        unsigned word[4] = { in[4 * i], in[4 * i + 1], in[4 * i + 2], in[4 * i + 3] };

        pairs_apart(word);
        for (int j = 0; j < 4; j++)
            out[4 * i + j] = word[j];
    }
}

//$ else
//$   include "cast/activation.c"

//$   for i, name in ipairs(activations) do
/* Value, and gradient along a and along b, of each pair a, b. */
ENTRY each_$(name)(const float *x, float *y, long count)
{
    EACH(i, count) {
        const float a = x[2 * i], b = x[2 * i + 1], slope = $(hex(1.702));
        const struct gradient d = activate_gradient($(i), a, b, 7, slope, 1);

        y[3 * i] = activate($(i), a, b, 7, slope, 1);
        y[3 * i + 1] = d.a;
        y[3 * i + 2] = d.b;
    }
}

//$   end
//$ end

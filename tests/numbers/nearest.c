/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c: casts to nearest even, and back. */
#include "numbers.h"

#include <math.h>

enum { CHUNK = 1 << 16 };

static float in[2 * CHUNK];
static uint32_t out[CHUNK];

/* Each code's value, in both directions; f16 and bf16 too. */
TEST(test_every_code)
{
    for (int i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        int count = f->codes;
        uint32_t sign = 1u << (f->width - 1);

        assert_true(format_value(f, count - 1) == f->most);
        for (int code = 0; code < count; code++) {
            out[2 * code] = (uint32_t)code;
            out[2 * code + 1] = (uint32_t)code | sign;
        }
        piece_of(NEAREST, "from_", f->name, "")(out, in, 2 * count);
        for (int code = 0; code < count; code++) {
            float value = (float)format_value(f, code);

            assert_int_equal(bits_from(in[2 * code]), bits_from(value));
            assert_int_equal(bits_from(in[2 * code + 1]), bits_from(-value));
        }
        piece_of(NEAREST, "to_", f->name, "")(in, out, 2 * count);
        for (int code = 0; code < 2 * count; code++)
            assert_int_equal(out[code],
                             (uint32_t)(code / 2) | (code % 2 ? sign : 0));
    }
}

/* After the finite values: infinity, then NaN. */
static void check_specials(const char *name, uint32_t first, uint32_t last,
                           uint32_t infinity)
{
    each_fn *from = piece_of(NEAREST, "from_", name, "");

    for (uint32_t code = first; code <= last; code++) {
        float value;

        from(&code, &value, 1);
        if (code == infinity)
            assert_true(isinf(value) && value > 0);
        else
            assert_true(isnan(value));
    }
}

/* The pieces' results for the first `count` of `in`. */
static void compare(const struct format *f, long count)
{
    piece_of(NEAREST, "to_", f->name, "")(in, out, count);
    for (long i = 0; i < count; i++) {
        unsigned expected = format_round(f, in[i]);

        if (out[i] != expected)
            fail_msg("%s of %08x (%a): %x instead of %x", f->name,
                     bits_from(in[i]), (double)in[i], out[i], expected);
    }
}

/* A boundary, its neighbours in fp32, and their negatives. */
static long put_around(float *at, double boundary)
{
    uint32_t bits = bits_from((float)boundary);
    long count = 0;

    for (uint32_t i = bits ? bits - 1 : 0; i <= bits + 1; i++) {
        at[count++] = float_from(i);
        at[count++] = float_from(i | 0x80000000u);
    }
    return count;
}

/* Every value of a format and every middle between two of them. */
TEST(test_boundaries)
{
    for (int i = 0; i < FORMATS; i++) {
        const struct format *f = &formats[i];
        int codes = f->codes;
        long count = 0;

        for (int code = 0; code < codes; code++) {
            double value = format_value(f, code);
            double next = format_value(f, code + 1);

            count += put_around(in + count, value);
            if (value / 2 + next / 2 <= 0x1.fffffep127)
                count += put_around(in + count, value / 2 + next / 2);
            if (count > CHUNK - 16 || code == codes - 1) {
                compare(f, count);
                count = 0;
            }
        }
    }
    check_specials("e4m3", 0x7F, 0x7F, 0);
    check_specials("e5m2", 0x7C, 0x7F, 0x7C);
    check_specials("f16", 0x7C00, 0x7FFF, 0x7C00);
    check_specials("bf16", 0x7F80, 0x7FFF, 0x7F80);
}

/* All signs, exponents and upper 12 bits of fractions, with what may stand
   below them: nothing, the least, a tie, more than one. */
TEST(test_nearest)
{
    static const uint32_t lower[] = {0, 1, 0x3FF, 0x400, 0x401, 0x7FF};
    enum { LOWER = sizeof lower / sizeof *lower, UPPER = 21 };

    for (int i = 0; i < FORMATS; i++) {
        for (uint32_t begin = 0; begin < 1u << UPPER; begin += CHUNK / 8) {
            long count = 0;

            for (uint32_t j = begin; j < begin + CHUNK / 8; j++)
                for (int k = 0; k < LOWER; k++)
                    in[count++] = float_from(j << (32 - UPPER) | lower[k]);
            compare(&formats[i], count);
        }
    }
}

/* Two at once are the two of them side by side. */
TEST(test_pairs)
{
    static const struct {
        const char *name;
        int shift;
    } types[] = {{"e4m3", 8}, {"e5m2", 8},  {"e2m3", 8}, {"e3m2", 8},
                 {"i8", 8},   {"bf16", 16}, {"f16", 16}, {"e2m1", 4},
                 {"i4", 4},   {"u4", 4},    {"u8", 8}};
    static uint32_t single[CHUNK];

    srand(1);
    for (int i = 0; i < CHUNK; i++)
        in[i] = float_from((uint32_t)rand() << 1 ^ (uint32_t)rand());
    for (int i = 0; i < 512; i++) /* values in range, and ties of many types */
        in[i] = (float)(i - 256) / 32;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        piece_of(NEAREST, "to_", types[i].name, "")(in, single, CHUNK);
        piece_of(NEAREST, "to_", types[i].name, "_x2")(in, out, CHUNK / 2);
        for (int j = 0; j < CHUNK / 2; j++)
            assert_int_equal(out[j], single[2 * j] | single[2 * j + 1]
                                                         << types[i].shift);
    }
}

/* Integers from `least` to `most`, whose codes are `zero` larger. */
struct integers {
    const char *name;
    int bits, least, most, zero;
};

/* To nearest even, where NaN is 0. */
static uint32_t rounded(const struct integers *t, float x)
{
    double v = isnan(x) ? 0 : x;

    v = v < t->least ? t->least : v > t->most ? t->most : v;
    v -= remainder(v, 1); /* remainder() goes to even at ties */
    return (uint32_t)((int)v + t->zero) & ((1u << t->bits) - 1);
}

/* The first `count` of `in`, and every code back, where the one below all that
   are made is a value, too. */
static void check_integers(const struct integers *t, long count)
{
    const int codes = 1 << t->bits;

    piece_of(NEAREST, "to_", t->name, "")(in, out, count);
    for (long i = 0; i < count; i++)
        assert_int_equal(out[i], rounded(t, in[i]));
    for (int i = 0; i < codes; i++)
        out[i] = (uint32_t)i;
    piece_of(NEAREST, "from_", t->name, "")(out, in, codes);
    for (int i = 0; i < codes; i++) {
        const int value = i - t->zero;

        assert_true(in[i] == (float)(t->least == -t->most && value > t->most
                                         ? value - codes
                                         : value));
    }
}

/* Every half around their ranges, and others. */
TEST(test_integers)
{
    static const struct integers types[] = {{"i8", 8, -127, 127, 0},
                                            {"i4", 4, -7, 7, 0},
                                            {"u4", 4, -8, 7, 8},
                                            {"u8", 8, -77, 178, 77}};

    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        long count = 0;

        for (int half = -600; half <= 600; half++)
            count += put_around(in + count, half / 2.0);
        for (uint32_t e = 0; e < 512; e++)
            for (uint32_t k = 0; k < 8; k++)
                in[count++] = float_from(e << 23 | k << 20 | k);
        check_integers(&types[t], count);
    }
}

TEST(test_f32)
{
    for (int i = 0; i < 512; i++) /* fp32 stays fp32 */
        in[i] = float_from((uint32_t)i << 23 | 0x155555);
    piece(NEAREST, "f32")(in, out, 512);
    for (uint32_t i = 0; i < 512; i++)
        assert_int_equal(out[i], i << 23 | 0x155555);
}

/* ------------------------------------------------------------------- e8m0 */

/* The first power of two that is not below v, by trying them all. */
static uint32_t power_up(float v)
{
    int code = 0;

    if (isnan(v))
        return 0xFF;
    while (code < 0xFE && ldexp(1, code - 127) < (double)v)
        code++;
    return (uint32_t)code;
}

/* The last one that is not above v. */
static uint32_t power_down(float v)
{
    int code = 0xFE;

    if (isnan(v))
        return 0xFF;
    while (code > 0 && ldexp(1, code - 127) > (double)v)
        code--;
    return (uint32_t)code;
}

TEST(test_e8m0)
{
    long count = 0;

    for (int e = -149; e <= 127; e++)
        for (int k = 4; k < 8; k++) {
            uint32_t bits = bits_from((float)ldexp(k / 4.0, e));

            for (uint32_t i = bits ? bits - 1 : 0; i <= bits + 1; i++)
                in[count++] = float_from(i);
        }
    in[count++] = 0;
    in[count++] = float_from(0x7FC00000);
    piece(NEAREST, "e8m0_up")(in, out, count);
    for (long i = 0; i < count; i++)
        assert_int_equal(out[i], power_up(in[i]));
    piece(NEAREST, "e8m0_floor")(in, out, count);
    for (long i = 0; i < count; i++)
        assert_int_equal(out[i], power_down(in[i]));
}

/* 2^(e - 127) and 2^(127 - e), with the two ends that fp32 has as denormals. */
TEST(test_e8m0_multiplier)
{
    for (uint32_t e = 0; e < 256; e++)
        out[e] = e;
    piece(NEAREST, "from_e8m0")(out, in, 256);
    piece(NEAREST, "e8m0_multiplier")(out, in + 256, 256);
    for (int e = 0; e < 255; e++) {
        assert_true((double)in[e] == ldexp(1, e - 127));
        assert_true((double)in[256 + e] == ldexp(1, 127 - e));
    }
    assert_true(isnan(in[255]) && isnan(in[511]));
    assert_int_equal(bits_from(in[256 + 254]), 0x00400000);
}

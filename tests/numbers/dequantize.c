/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize.c: codes times scales as bf16 and f16, as the products of Hopper
   dequantize them: every code with every scale, at every position of a word. */
#include "numbers.h"

#include <math.h>
#include <stdio.h>

enum { CODES = 256, SCALES = 256 };

static const struct format *format_named(const char *name)
{
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(formats[i].name, name))
            return &formats[i];
    fail_msg("no format %s", name);
    return NULL;
}

/* Formats with fewer than nine bits; after the finite values of E4M3 comes
   NaN, of E5M2 infinity and then NaN. */
static double value_of(const struct format *f, int code)
{
    int size = code & ((1 << (f->width - 1)) - 1);
    double value = size < f->codes ? format_value(f, size)
                   : f->fraction == 2 && size == f->codes ? (double)INFINITY
                                                          : (double)NAN;

    return code == size ? value : -value;
}

static double scale_of(const char *type, int code)
{
    if (!strcmp(type, "e4m3"))
        return value_of(format_named(type), code);
    return code == 255 ? (double)NAN : ldexp(1, code - 127);
}

/* The code at position `j` of word `i`: each position meets each code. */
static int code_at(const struct format *f, int i, int j)
{
    return (i * (2 * j + 1) + 3 * j) & ((1 << f->width) - 1);
}

/* The rounded fp32 product, or its part. */
static unsigned expected(const struct format *f, int code, const char *type,
                         int scale, double part, const char *to)
{
    float product = (float)(value_of(f, code) * scale_of(type, scale) * part);

    return format_round(format_named(to), product);
}

/* The place in a word of the code that pair `j / 2` has as its low or high
   half; `apart`: those that are four apart make a pair. */
static int place_of(int j, int apart)
{
    return apart ? j / 2 + j % 2 * 4 : j;
}

/* One function over each code at each position with each scale up to `most`,
   which it takes for those above, too. */
static void check_as(const char *to, const struct format *f, const char *name,
                     const char *type, int apart, int most, double part)
{
    static uint32_t in[CODES * SCALES][2], out[CODES * SCALES * 4];
    int bits = f->width == 4 ? 4 : 8, each = 32 / bits, words = 1 << f->width;

    for (int i = 0; i < words * SCALES; i++) {
        in[i][0] = 0;
        for (int j = 0; j < each; j++)
            in[i][0] |= (uint32_t)code_at(f, i % words, j) << bits * j;
        in[i][1] = (uint32_t)(i / words);
    }
    piece(DEQUANTIZE, name)(in, out, (long)words * SCALES);
    for (int i = 0; i < words * SCALES; i++)
        for (int j = 0; j < each; j++) {
            int code = code_at(f, i % words, place_of(j, apart));
            int scale = i / words < most ? i / words : most;
            unsigned got = out[i * each / 2 + j / 2] >> j % 2 * 16 & 0xffff;
            unsigned right = expected(f, code, type, scale, part, to);

            if (got != right)
                fail_msg("%s: code %02x, scale %02x: %04x instead of %04x",
                         name, (unsigned)code, (unsigned)scale, got, right);
        }
}

static void check(const struct format *f, const char *name, const char *type,
                  int apart, int most, double part)
{
    check_as("bf16", f, name, type, apart, most, part);
}

/* With scales of both types, and the short form of one of them. */
static void check_all(const struct format *f, int apart, int most)
{
    static const char *const types[] = {"e8m0", "e4m3"};
    const char *suffix = apart ? "_apart" : "";
    char name[64];

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "dequantize_%s%s_%s", f->name, suffix,
                 types[i]);
        check(f, name, types[i], apart, SCALES - 1, 1);
    }
    snprintf(name, sizeof name, "twice_%s%s", f->name, suffix);
    check(f, name, "e8m0", apart, most, 1);
}

TEST(test_dequantize_every_pair)
{
    for (int i = 0; i < NARROW; i++)
        check_all(&formats[i], 0, 254);
    check_all(format_named("e2m1"), 1, 128);
    check(format_named("e2m1"), "low_e2m1_apart", "e4m3", 1, SCALES - 1,
          0x1p-9);
    check(format_named("e2m1"), "dequantize_e2m1_byte_e8m0", "e8m0", 0,
          SCALES - 1, 1);
    check(format_named("e2m1"), "dequantize_e2m1_byte_e4m3", "e4m3", 0,
          SCALES - 1, 1);
    check(format_named("e2m1"), "twice_e2m1_byte", "e8m0", 0, 128, 1);
    check(format_named("e2m1"), "low_e2m1_byte", "e4m3", 0, SCALES - 1, 0x1p-9);
}

TEST(test_dequantize_every_pair_as_f16)
{
    static const char *const types[] = {"e8m0", "e4m3"};
    char name[64];

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "half_e4m3_%s", types[i]);
        check_as("f16", format_named("e4m3"), name, types[i], 0, SCALES - 1, 1);
        snprintf(name, sizeof name, "half_e2m1_%s", types[i]);
        check_as("f16", format_named("e2m1"), name, types[i], 0, SCALES - 1, 1);
        snprintf(name, sizeof name, "half_twice_%s", types[i]);
        check_as("f16", format_named("e2m1"), name, types[i], 1,
                 i ? SCALES - 1 : 128, i ? 0x1p-9 : 1);
    }
}

/* The product that is rounded to fp32 and then to bf16 or f16; -1: NaN. */
static int rounded(double code, double scale, int half)
{
    const float product = (float)(code * scale);
    int exponent;
    double unit;

    if (isnan(product))
        return -1;
    if (half)
        return (int)format_round(format_named("f16"), product);
    if (isinf(product) || product == 0)
        return (int)(bits_from(product) >> 16);
    frexp((double)product, &exponent);
    unit = ldexp(1, exponent - 8 < -133 ? -133 : exponent - 8);
    return (int)(bits_from((float)(rint((double)product / unit) * unit)) >> 16);
}

static double wide_scale(const char *type, uint32_t bits)
{
    return !strcmp(type, "f32") ? (double)float_from(bits)
           : !strcmp(type, "bf16")
               ? (double)float_from(bits << 16)
               : format_value(format_named("f16"), (int)(bits & 0x7fff)) *
                     (bits >> 15 ? -1 : 1);
}

/* A scale's bits: all of 16, or of fp32 as many that are drawn. f16 that is no
   number is left to the device's test. */
static uint32_t wide_bits(const char *type, int i)
{
    if (!strcmp(type, "f32"))
        return (uint32_t)i * 2654435761u;
    return !strcmp(type, "f16") && (i & 0x7c00) == 0x7c00 ? 0 : (uint32_t)i;
}

/* Zero has no sign that a sum would keep. */
static void check_integer(const char *name, unsigned got, int value,
                          double scale, uint32_t bits)
{
    const int half = strstr(name, "half") != NULL;
    const int right = rounded(value, scale, half);

    if (right < 0 ? (got & 0x7fff) > (half ? 0x7c00u : 0x7f80u)
                  : got == (unsigned)right ||
                        ((right & 0x7fff) == 0 && (got & 0x7fff) == 0))
        return;
    fail_msg("%s: value %d, scale %08x: %04x instead of %04x", name, value,
             (unsigned)bits, got, (unsigned)right);
}

/* Each triple of a code, a scale and a code that stands for 0, in a word with
   the scale if that has 16 bits: two words have all codes, at other positions
   for the next scale. Bits after such a zero point mean nothing. */
static void check_integers(const char *type, const char *form, int zero)
{
    enum { WIDE = 65536 };
    static uint32_t in[2 * WIDE][3], out[2 * WIDE][8];
    const int stored = strcmp(type, "f32") != 0;
    const int apart = !strcmp(form, "_apart");
    char name[64];

    snprintf(name, sizeof name, "integers%s_%s", form, type);
    for (int i = 0; i < 2 * WIDE; i++) {
        in[i][0] = 0;
        for (int j = 0; j < 8; j++)
            in[i][0] |= (uint32_t)((8 * i + j + i / 2) & 15) << 4 * j;
        in[i][1] = wide_bits(type, i / 2);
        if (stored)
            in[i][1] |= (uint32_t)(zero | i << 4) << 16;
        in[i][2] = (uint32_t)zero;
    }
    piece(DEQUANTIZE, name)(in, out, 2L * WIDE);
    for (int i = 0; i < 2 * WIDE; i++) {
        const double scale =
            wide_scale(type, stored ? in[i][1] & 0xffff : in[i][1]);

        for (int j = 0; j < 8; j++) {
            const int code = (int)(in[i][0] >> 4 * place_of(j, apart) & 15);
            const unsigned signs = out[i][j / 2] >> j % 2 * 16 & 0xffff;
            const unsigned plain = out[i][4 + j / 2] >> j % 2 * 16 & 0xffff;

            check_integer(name, signs, code < 8 ? code : code - 16, scale,
                          in[i][1]);
            check_integer(name, plain, code - zero, scale, in[i][1]);
        }
    }
}

TEST(test_dequantize_integers)
{
    static const char *const types[] = {"bf16", "f16", "f32"};
    static const char *const forms[] = {"", "_apart", "_byte"};

    for (int type = 0; type < 3; type++)
        for (int zero = 0; zero < 15 + (type < 2); zero++)
            check_integers(types[type], forms[zero % 3], zero);
    for (int type = 0; type < 3; type++)
        for (int form = 0; form < 3; form++)
            check_integers(types[type], forms[form], 8);
    for (int zero = 0; zero < 16; zero++)
        check_integers("bf16", "_short", zero);
    for (int type = 0; type < 3; type++)
        for (int zero = 0; zero < 15 + (type < 2); zero++)
            check_integers(types[type], "_half", zero);
}

/* Every code with scales of fp32 that are drawn. */
TEST(test_dequantize_e4m3_wide)
{
    static uint32_t in[64 * 4096][2], out[64 * 4096][2];
    const struct format *f = format_named("e4m3");

    for (int i = 0; i < 64 * 4096; i++) {
        in[i][0] = (uint32_t)(i % 64) * 0x04040404u + 0x03020100u;
        in[i][1] = (uint32_t)(i / 64) * 2654435761u;
    }
    piece(DEQUANTIZE, "e4m3_wide")(in, out, 64L * 4096);
    for (int i = 0; i < 64 * 4096; i++)
        for (int j = 0; j < 4; j++) {
            const unsigned got = out[i][j / 2] >> j % 2 * 16 & 0xffff;
            const int right =
                rounded(value_of(f, (int)(in[i][0] >> 8 * j & 255)),
                        (double)float_from(in[i][1]), 0);

            assert_true(right < 0 ? (got & 0x7fff) > 0x7f80
                                  : got == (unsigned)right);
        }
}

/* Finite. */
static double half_from(unsigned code)
{
    double value = format_value(format_named("f16"), (int)(code & 0x7fff));

    return code >> 15 ? -value : value;
}

/* Four codes under a scale: those of f16 that are the very values, and for a
   scale that may not be had zeros where the codes are. */
static void check_f16(const uint32_t in[3], const uint32_t out[4])
{
    const struct format *narrow = format_named("e4m3");
    const int scale = (int)in[1], most = (int)in[2];
    const int low = (most < 74 ? 74 : most) - 22;
    const int fits = most <= 194 && scale > low;

    assert_int_equal(out[3], fits);
    if (scale > most || (!fits && most > 194))
        return; /* no scale is above the largest */
    for (int j = 0; j < 4; j++) {
        const int code = (int)(in[0] >> 8 * j & 255);
        const unsigned got = out[j / 2] >> j % 2 * 16 & 0xffff;
        const double value = value_of(narrow, code);
        const double exact = fits ? ldexp(value, scale - low - 15) : value * 0;
        const unsigned right = format_round(format_named("f16"), (float)exact);

        if (got != right && !(isnan(value) && (got & 0x7fff) > 0x7c00))
            fail_msg("code %02x, scale %d of %d: %04x instead of %04x",
                     (unsigned)code, scale, most, got, right);
        if (fits &&
            isfinite(value)) /* nothing was rounded, and it comes back */
            assert_true(ldexp(half_from(got), low - 112) ==
                        ldexp(value, scale - 127));
    }
    if (fits)
        assert_true(float_from(out[2]) == ldexpf(1, 2 * (low - 112)));
}

/* Every code at every position, with every scale below every largest one. */
TEST(test_dequantize_f16)
{
    static uint32_t in[256 * SCALES][3], out[256 * SCALES][4];
    const struct format *narrow = format_named("e4m3");

    for (int most = 0; most < SCALES; most++) {
        for (int i = 0; i < 256 * SCALES; i++) {
            in[i][0] = 0;
            for (int j = 0; j < 4; j++)
                in[i][0] |= (uint32_t)code_at(narrow, i % 256, j) << 8 * j;
            in[i][1] = (uint32_t)(i / 256);
            in[i][2] = (uint32_t)most;
        }
        piece(DEQUANTIZE, "dequantize_e4m3_f16")(in, out, 256L * SCALES);
        for (int i = 0; i < 256 * SCALES; i++)
            check_f16(in[i], out[i]);
    }
}

/* Four scales where the first ones' largest is `most`: a factor or none, and
   whether it was easily had. 16 of the 22 factors are near. */
static void check_sampled(const uint32_t in[2], const uint32_t out[7])
{
    const int spare = (int)in[1] + 5, top = spare < 74 ? 74 : spare;
    const int low = (top > 194 ? 194 : top) - 22;
    uint32_t near = 1, over = 0;

    assert_int_equal(out[6], low);
    for (int j = 0; j < 4; j++) {
        const int code = (int)(in[0] >> 8 * j & 255), above = code - low;
        const int fits = above > 0 && above <= 22;
        const double factor = half_from(out[j] & 0xffff);

        if (out[j] >> 16 != (out[j] & 0xffff) ||
            factor != (fits ? ldexp(1, above - 15) : 0))
            fail_msg("scale %d of %08x where %d is 0: %08x", code,
                     (unsigned)in[0], low, (unsigned)out[j]);
        near &= above > 6 && above <= 22;
        over |= above > 22;
    }
    assert_int_equal(out[4], near);
    assert_int_equal(out[5], over);
}

/* Every scale at every position next to others that are near, far, or too
   large. */
TEST(test_dequantize_sampled)
{
    enum { OTHERS = 6 };
    static uint32_t in[SCALES * OTHERS * 4][2], out[SCALES * OTHERS * 4][7];

    for (int most = 0; most < SCALES; most++) {
        const int others[OTHERS] = {most, most > 12 ? most - 12 : 0,   0,
                                    255,  most < 249 ? most + 6 : 255, 1};
        int count = 0;

        for (int code = 0; code < SCALES; code++)
            for (int other = 0; other < OTHERS; other++)
                for (int place = 0; place < 4; place++, count++) {
                    const uint32_t rest = (uint32_t)others[other] * 0x1010101u;

                    in[count][0] = (rest & ~(255u << 8 * place)) |
                                   (uint32_t)code << 8 * place;
                    in[count][1] = (uint32_t)most;
                }
        piece(DEQUANTIZE, "sampled_f16")(in, out, count);
        for (int i = 0; i < count; i++)
            check_sampled(in[i], out[i]);
    }
}

/* Eight codes under one scale among values whose largest has another: those
   that e4m3 represents, up to 2^6, and all others as NaN. */
static void check_again(const struct format *narrow, const struct format *wide,
                        const uint32_t in[3], const uint32_t out[4])
{
    const int scale = (int)in[1], exponent = ilogbf(float_from(out[2]));
    const int r = scale - 127 - exponent;
    uint32_t all = 1;

    for (int j = 0; j < 8; j++) {
        const int code = (int)(in[0] >> 4 * j & 15);
        const int again = (int)(out[j / 4] >> j % 4 * 8 & 255);
        const double value = ldexp(value_of(narrow, code), r);
        const int fits = !(code & 7) || (r <= 6 && fmod(value, 0x1p-9) == 0);

        if (fits ? value_of(wide, again) != value : (again & 127) != 127)
            fail_msg("code %x under %d and %d: %02x", (unsigned)code, scale,
                     (int)in[2], (unsigned)again);
        assert_int_equal(again >> 7, code >> 3);
        all &= (uint32_t)fits;
    }
    assert_int_equal(out[3], all);
}

/* Every code at every position, with every scale and every largest one: the
   same value, where it fits, and zeros always. */
TEST(test_dequantize_encode_again)
{
    static uint32_t in[16 * SCALES][3], out[16 * SCALES][4];
    const struct format *narrow = format_named("e2m1");
    const struct format *wide = format_named("e4m3");

    for (int largest = 0; largest < SCALES; largest++) {
        const int exponent = largest < 83    ? -50
                             : largest > 183 ? 50
                                             : largest - 133;

        for (int i = 0; i < 16 * SCALES; i++) {
            in[i][0] = 0;
            for (int j = 0; j < 8; j++)
                in[i][0] |= (uint32_t)code_at(narrow, i % 16, j) << 4 * j;
            in[i][1] = (uint32_t)(i / 16);
            in[i][2] = (uint32_t)largest;
        }
        piece(DEQUANTIZE, "requantize_e2m1")(in, out, 16L * SCALES);
        for (int i = 0; i < 16 * SCALES; i++) {
            assert_true(float_from(out[i][2]) == ldexpf(1, exponent));
            check_again(narrow, wide, in[i], out[i]);
        }
    }
}

/* Eight codes under scale `in[2]` of four: exactly, by e4m3 and the factor, or
   NaN where there is no such e4m3. */
static void check_rebased(const uint32_t in[3], const uint32_t out[6])
{
    const int scale = (int)(in[1] >> 8 * in[2] & 255);
    const float factor = float_from(out[4]);
    int most = 0, least = 255;

    for (int i = 0; i < 4; i++) {
        const int one = (int)(in[1] >> 8 * i & 255);

        most = one > most ? one : most;
        least = one < least ? one : least;
    }
    assert_int_equal(out[5], most - least >= 12);
    assert_true(out[0] == out[2] && out[1] == out[3]);
    if (most == 255) {
        assert_true(isnan(factor));
        return;
    }
    for (int j = 0; j < 8; j++) {
        const int code = (int)(in[0] >> 4 * j & 15);
        const int again = (int)(out[j / 4] >> j % 4 * 8 & 255);
        const double value =
            ldexp(value_of(format_named("e2m1"), code), scale - 127);
        const double got =
            value_of(format_named("e4m3"), again) * (double)factor;
        const int fits =
            scale >= most - 14 || fmod(ldexp(value, 133 - most), 0x1p-9) == 0;

        if (fits ? got != value || signbit(got) != signbit(value) : !isnan(got))
            fail_msg("code %x under %d of %08x: %02x", (unsigned)code, scale,
                     (unsigned)in[1], (unsigned)again);
    }
}

/* Every code at every position, with every scale, at each place among others
   whose largest is every one. */
TEST(test_dequantize_rebase)
{
    static uint32_t in[16 * SCALES][3], out[16 * SCALES][6];
    const struct format *narrow = format_named("e2m1");

    for (uint32_t most = 0; most < SCALES; most++) {
        for (uint32_t i = 0; i < 16 * SCALES; i++) {
            const uint32_t scale = i / 16, place = (i + most) % 4;

            in[i][0] = 0;
            for (int j = 0; j < 8; j++)
                in[i][0] |= (uint32_t)code_at(narrow, (int)i % 16, j) << 4 * j;
            in[i][1] = (most * 0x01010101u & ~(255u << 8 * place)) |
                       scale << 8 * place;
            in[i][2] = place;
        }
        piece(DEQUANTIZE, "rebase_e2m1")(in, out, 16L * SCALES);
        for (int i = 0; i < 16 * SCALES; i++)
            check_rebased(in[i], out[i]);
    }
}

/* The largest is 2^6 of the scale that it gets, 6 becomes 384 of 448; 2^14
   below it 0.5 is the least denormal. Further down only larger ones are. */
TEST(test_dequantize_again_ends)
{
    static const struct {
        uint32_t code, scale, largest, again, fits;
    } rows[] = {
        {7, 127, 127, 0x7c, 1}, {7, 113, 127, 0x0c, 1}, {1, 113, 127, 0x01, 1},
        {1, 112, 127, 0x7f, 0}, {7, 112, 127, 0x06, 1}, {6, 110, 127, 0x01, 1},
        {7, 110, 127, 0x7f, 0}, {6, 109, 127, 0x7f, 0}, {0, 109, 127, 0x00, 1},
        {7, 183, 183, 0x7c, 1}, {7, 184, 184, 0x7f, 0}, {0, 184, 184, 0x00, 1},
        {7, 254, 254, 0x7f, 0}, {1, 69, 69, 0x01, 1},   {1, 68, 68, 0x7f, 0},
        {7, 255, 255, 0x7f, 0}, {7, 0, 0, 0x7f, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint32_t in[3] = {rows[i].code, rows[i].scale, rows[i].largest};
        uint32_t out[4];

        piece(DEQUANTIZE, "requantize_e2m1")(in, out, 1);
        assert_int_equal(out[3], rows[i].fits);
        assert_int_equal(out[0] & 255, rows[i].again);
    }
}

/* Above 2 no scale takes the short form, at any position; up to 1 each does. */
TEST(test_dequantize_beyond)
{
    for (uint32_t code = 0; code < 256; code++)
        for (int i = 0; i < 4; i++) {
            uint32_t in = code << 8 * i, out;

            piece(DEQUANTIZE, "beyond_apart")(&in, &out, 1);
            if (code > 128)
                assert_int_not_equal(out, 0);
            if (code < 128)
                assert_int_equal(out, 0);
        }
}

/* Eight bytes and eight halves of words, each its own. */
TEST(test_dequantize_apart)
{
    static const uint32_t bytes[] = {0x03020100, 0x07060504};
    static const uint32_t halves[] = {0x00010000, 0x00030002, 0x00050004,
                                      0x00070006};
    uint32_t out[4];

    piece(DEQUANTIZE, "codes_apart")(bytes, out, 1);
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i / 4] >> i % 4 * 8 & 0xff, place_of(i, 1));
    piece(DEQUANTIZE, "pairs_apart")(halves, out, 1);
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i / 2] >> i % 2 * 16 & 0xffff, place_of(i, 1));
}

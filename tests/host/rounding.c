/* SPDX-License-Identifier: Apache-2.0 */
/*
** rounding.c: the cast of an fp32 sum to BF16 and to FP16, against integer
** arithmetic.
**
** BF16 operands reach every fp32 value: its 24-bit significand is cut into
** three pieces of 8 bits, each one product, and the three sums are exact. Small
** values, whose pieces are below BF16's range, are scaled up in A and down
** again in B. The fp32 output shows that the sum arrived unchanged.
*/
#include "host.h"

#include <math.h>

/* The lower halves that decide: below, at and above a tie, and the ends. */
static const uint32_t lower[] = {0, 1, 0x1234, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
enum { LOWER = sizeof lower / sizeof lower[0], UPPER = 65536 };
enum { SCALE = 120 }; /* exponent moved from A to B in column 1 */

/* Row r tests this fp32 value. */
static uint32_t value_bits(int64_t row)
{
    return (uint32_t)(row / LOWER) << 16 | lower[row % LOWER];
}

/* NaN and infinity have no sum of finite pieces. */
static int is_finite(uint32_t bits)
{
    return (bits & 0x7F800000u) != 0x7F800000u;
}

/* Values below 2^-63: their lowest piece would be no BF16 number. */
static int small(uint32_t bits)
{
    return (bits >> 23 & 0xFF) < 64;
}

/* [hi, middle, low] with hi + middle + low = value * 2^scale, all exact. */
static void cut(uint32_t bits, int scale, uint16_t piece[3])
{
    int exponent = (int)(bits >> 23 & 0xFF);
    uint32_t significand = bits & 0x7FFFFF;

    if (exponent)
        significand |= 0x800000;
    else
        exponent = 1;
    for (int i = 0; i < 3; i++) {
        uint32_t byte = significand >> (16 - 8 * i) & 0xFF;
        float part = ldexpf((float)byte, exponent - 150 + 16 - 8 * i + scale);

        piece[i] = qt_bf16(bits >> 31 ? -part : part);
    }
}

/* To nearest even, only in integers; written apart from qt_bf16 on purpose. */
static uint16_t rounded(uint32_t bits)
{
    uint32_t upper = bits >> 16, rest = bits & 0xFFFF;

    if (rest > 0x8000 || (rest == 0x8000 && upper % 2 == 1))
        upper++;
    return (uint16_t)upper;
}

/* Row r holds the pieces of value r; column 0 takes them as they are, column 1
   scaled back. */
static void make_rows(const struct qt_case *c, struct qt_data *data)
{
    assert_int_equal(qt_data_make(c, data), 0);
    for (int64_t row = 0; row < c->m; row++) {
        uint32_t bits = value_bits(row);
        uint16_t *a = data->operand[QT_A];

        cut(bits, small(bits) ? SCALE : 0, a + row * 3);
    }
    for (int p = 0; p < 3; p++) {
        uint16_t *b = data->operand[QT_B];

        b[p] = qt_bf16(1);
        b[3 + p] = qt_bf16(ldexpf(1, -SCALE));
    }
}

/* One group of 458752 rows; both outputs of the same sums. */
static void rounding_case(struct qt_case *c, struct host_output *bf16,
                          struct host_output *f32)
{
    struct qt_data data;

    *c = (struct qt_case){.what = "every BF16 and its neighbours",
                          .type = QUERN_BF16,
                          .ragged = QUERN_AXIS_M,
                          .groups = 1,
                          .m = (int64_t)UPPER * LOWER,
                          .n = 2,
                          .k = 3,
                          .sizes_type = QUERN_I32,
                          .form = QT_FIRST};
    c->length[0] = c->start[1] = c->m;
    c->d_type = QUERN_BF16;
    make_rows(c, &data);
    host_multiply(c, &data, 0, bf16);
    qt_data_free(&data);
    c->d_type = QUERN_F32;
    make_rows(c, &data);
    host_multiply(c, &data, 0, f32);
    qt_data_free(&data);
}

/* All 65536 upper halves, each with 7 lower ones, denormals included. */
TEST(test_rounding_to_bf16)
{
    struct host_output bf16 = {0}, f32 = {0};
    struct qt_case c;
    int64_t seen = 0;

    rounding_case(&c, &bf16, &f32);
    for (int64_t row = 0; row < c.m; row++) {
        uint32_t bits = value_bits(row), sum;
        int64_t at = row * 2 + small(bits);

        if (!is_finite(bits))
            continue;
        memcpy(&sum, (float *)f32.d + at, sizeof sum);
        /* A sum of signed zeros is +0, unless all are negative. */
        if (bits << 1 && sum != bits)
            fail_msg("the sum for %08x is %08x", bits, sum);
        if (((uint16_t *)bf16.d)[at] != rounded(sum))
            fail_msg("%08x became %04x, expected %04x", sum,
                     ((uint16_t *)bf16.d)[at], rounded(sum));
        seen++;
    }
    assert_int_equal(seen, (int64_t)LOWER * (UPPER - 256));
    host_output_free(&bf16);
    host_output_free(&f32);
}

/* To nearest even, from the bits of an fp32 value; no NaN. */
static uint16_t rounded_f16(uint32_t bits)
{
    int exponent = (int)(bits >> 23 & 0xFF) - 127;
    uint64_t significand = (uint64_t)(bits & 0x7FFFFF) | 0x800000;
    /* units of fp16's last place: 2^-24, or 2^(exponent - 10) above 2^-14 */
    int shift = exponent < -14 ? -1 - exponent : 13;
    uint64_t unit = shift < 40 ? (uint64_t)1 << shift : (uint64_t)1 << 40;
    uint64_t whole = significand / unit, rest = significand % unit;

    if (exponent == -127) /* an fp32 denormal is far below half of 2^-24 */
        return (uint16_t)(bits >> 16 & 0x8000);
    if (rest > unit / 2 || (rest == unit / 2 && whole % 2 == 1))
        whole++;
    if (exponent >= -14)
        whole += (uint64_t)(exponent + 14) * 1024;
    if (exponent > 15 || whole > 0x7C00)
        whole = 0x7C00;
    return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)whole;
}

/* Products of two FP16 values: every high part, and low parts at, around and
   between the ties of FP16, as one sum of two terms hi * 1 + lo * 2^-scale. */
TEST(test_rounding_to_f16)
{
    struct qt_case c = {.what = "every FP16 and its neighbours",
                        .type = QUERN_F16,
                        .ragged = QUERN_AXIS_M,
                        .groups = 1,
                        .m = UPPER,
                        .n = 5,
                        .k = 2,
                        .sizes_type = QUERN_I32,
                        .form = QT_FIRST};
    static const float low[] = {0, 0.5f, -0.5f, 0.499755859375f, 0.25f};
    struct host_output f16 = {0}, f32 = {0};
    struct qt_data data;

    c.length[0] = c.start[1] = c.m;
    for (int pass = 0; pass < 2; pass++) {
        uint16_t *a, *b;

        c.d_type = pass ? QUERN_F16 : QUERN_F32;
        assert_int_equal(qt_data_make(&c, &data), 0);
        a = data.operand[QT_A];
        b = data.operand[QT_B];
        for (int i = 0; i < UPPER; i++) {
            int exponent = i >> 10 & 31;

            a[2 * i] = (uint16_t)i;
            a[2 * i + 1] = /* one unit in the last place of a[2 * i] */
                qt_f16(ldexpf(1, (exponent ? exponent : 1) - 25));
        }
        for (int j = 0; j < 5; j++) {
            b[2 * j] = qt_f16(1);
            b[2 * j + 1] = qt_f16(low[j]);
        }
        host_multiply(&c, &data, 0, pass ? &f16 : &f32);
        qt_data_free(&data);
    }
    for (int64_t i = 0; i < c.m * c.n; i++) {
        uint32_t bits = ((uint32_t *)f32.d)[i];

        if (is_finite(bits) && ((uint16_t *)f16.d)[i] != rounded_f16(bits))
            fail_msg("%08x became %04x, expected %04x", bits,
                     ((uint16_t *)f16.d)[i], rounded_f16(bits));
    }
    host_output_free(&f16);
    host_output_free(&f32);
}

/* A product of one term: infinities keep their sign, a NaN stays a NaN. */
TEST(test_rounding_nan_and_inf)
{
    static const uint16_t in[] = {0x7F80, 0xFF80, 0x7F81, 0x7FC0,
                                  0xFFFF, 0x7F7F, 0xFF7F, 0x0000};
    struct qt_case c = {.what = "NaN and infinity",
                        .type = QUERN_BF16,
                        .d_type = QUERN_BF16,
                        .ragged = QUERN_AXIS_M,
                        .groups = 1,
                        .m = 8,
                        .n = 2,
                        .k = 1,
                        .sizes_type = QUERN_I32,
                        .form = QT_FIRST};
    struct host_output out = {0};
    struct qt_data data;
    const uint16_t *d;

    c.length[0] = c.start[1] = 8;
    assert_int_equal(qt_data_make(&c, &data), 0);
    memcpy(data.operand[QT_A], in, sizeof in);
    ((uint16_t *)data.operand[QT_B])[0] = qt_bf16(1);
    ((uint16_t *)data.operand[QT_B])[1] = qt_bf16(4);
    host_multiply(&c, &data, 0, &out);
    d = out.d;
    for (int i = 0; i < 8; i++)
        if ((in[i] & 0x7FFF) > 0x7F80)
            assert_true((d[2 * i] & 0x7FFF) > 0x7F80);
        else
            assert_int_equal(d[2 * i], in[i]);
    assert_int_equal(d[2 * 5 + 1], 0x7F80); /* 4 times the largest number */
    assert_int_equal(d[2 * 6 + 1], 0xFF80);
    host_output_free(&out);
    qt_data_free(&data);
}

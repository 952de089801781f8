/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c: floats of 16, 8, 6 and 4 bits. */
#include "formats.h"

#include <math.h>
#include <string.h>

float px_float_of_half(uint16_t bits)
{
    uint32_t word = (uint32_t)(bits & 0x7fff) << 13;
    float x;

    if (word >= 0x7c00 << 13)
        word |= 0x7f800000;
    memcpy(&x, &word, sizeof x);
    if (word < 0x7c00 << 13)
        x *= 0x1p112f;
    return bits & 0x8000 ? -x : x;
}

/* A code of `mantissa` bits, with the bias and the largest code of a number. */
static float decode(uint8_t bits, int mantissa, int bias)
{
    const float sign = bits & 0x80 ? -1 : 1;
    const int fraction = bits & ((1 << mantissa) - 1);
    const int exponent = (bits & 0x7f) >> mantissa;

    if (!exponent)
        return sign * ldexpf((float)fraction, 1 - bias - mantissa);
    return sign * ldexpf((float)((1 << mantissa) + fraction),
                         exponent - bias - mantissa);
}

float px_float_of_e4m3(uint8_t bits)
{
    return (bits & 0x7f) == 0x7f ? NAN : decode(bits, 3, 7);
}

float px_float_of_e5m2(uint8_t bits)
{
    if ((bits & 0x7f) == 0x7c)
        return bits & 0x80 ? -INFINITY : INFINITY;
    return (bits & 0x7f) > 0x7c ? NAN : decode(bits, 2, 15);
}

/* These have no codes but numbers. */
float px_float_of_e3m2(uint8_t bits)
{
    return decode((uint8_t)((bits & 0x20) << 2 | (bits & 0x1f)), 2, 3);
}

float px_float_of_e2m3(uint8_t bits)
{
    return decode((uint8_t)((bits & 0x20) << 2 | (bits & 0x1f)), 3, 1);
}

float px_float_of_e2m1(uint8_t bits)
{
    return decode((uint8_t)((bits & 8) << 4 | (bits & 7)), 1, 1);
}

/* The nearest multiple of the format's last place, ties to even. */
static double rounded(double x, int mantissa, int least)
{
    int exponent;
    double unit;

    if (x == 0 || isinf(x))
        return x;
    frexp(x, &exponent);
    exponent -= 1;
    if (exponent < least)
        exponent = least;
    unit = ldexp(1, exponent - mantissa);
    return nearbyint(x / unit) * unit;
}

/* The code of a magnitude that is a number of the format. */
static unsigned code_of(double x, int mantissa, int least)
{
    int exponent;

    if (x < ldexp(1, least))
        return (unsigned)ldexp(x, mantissa - least);
    frexp(x, &exponent);
    exponent -= 1;
    return ((unsigned)(exponent - least) << mantissa) +
           (unsigned)ldexp(x, mantissa - exponent);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The code of a magnitude, of `mantissa` bits, whose exponent is at least
   `least`; values that are too large have codes that are too large. */
static uint32_t nearest(float x, int mantissa, int least)
{
    const int shift = 23 - mantissa;
    uint32_t bits = bits_of(x);

    if (x < ldexpf(1, least)) { /* adding rounds at the format's last bit */
        const float magic = ldexpf(1, least + shift);

        return bits_of(x + magic) - bits_of(magic);
    }
    bits += (1u << (shift - 1)) - 1 + (bits >> shift & 1);
    return (bits >> shift) - ((uint32_t)(126 + least) << mantissa);
}

/* With one rounding, also of a double that is no float. */
static uint32_t magnitude(double x, int mantissa, int least)
{
    const float y = (float)fabs(x);

    return (double)y == fabs(x)
               ? nearest(y, mantissa, least)
               : code_of(rounded(fabs(x), mantissa, least), mantissa, least);
}

uint16_t px_half_of(double x)
{
    const unsigned sign = signbit(x) ? 0x8000 : 0;
    uint32_t code;

    if (x != x)
        return 0x7fff;
    code = fabs(x) < 65536 ? magnitude(x, 10, -14) : 0x7c00;
    return (uint16_t)(sign | (code > 0x7c00 ? 0x7c00 : code));
}

uint16_t px_bf16_of(double x)
{
    const unsigned sign = signbit(x) ? 0x8000 : 0;
    const float y = (float)x;
    uint32_t bits = bits_of(y) & 0x7fffffff;

    if (x != x)
        return 0x7fff;
    if ((double)y == x)
        return (uint16_t)(sign | (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    if (fabs(x) >= 0x1p128)
        return (uint16_t)(sign | 0x7f80);
    return (uint16_t)(sign | code_of(rounded(fabs(x), 7, -126), 7, -126));
}

/* The largest instead of a larger one. */
static uint8_t narrow(float x, int mantissa, int least, uint32_t most)
{
    const unsigned sign = signbit(x) ? 0x80 : 0;
    uint32_t code;

    if (x != x)
        return 0x7f;
    code = fabsf(x) < 65536 ? nearest(fabsf(x), mantissa, least) : most;
    return (uint8_t)(sign | (code > most ? most : code));
}

uint8_t px_e4m3_of(float x)
{
    return narrow(x, 3, -6, 0x7e);
}

uint8_t px_e5m2_of(float x)
{
    return narrow(x, 2, -14, 0x7b);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c: floats of 16 and 8 bits. */
#include "formats.h"

#include <math.h>
#include <string.h>

float px_float_of_half(uint16_t bits)
{
    const float sign = bits & 0x8000 ? -1 : 1;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                            : ldexpf((float)fraction, -24));
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

uint16_t px_half_of(double x)
{
    const unsigned sign = signbit(x) ? 0x8000 : 0;

    if (x != x)
        return 0x7fff;
    x = rounded(fabs(x), 10, -14);
    return (uint16_t)(sign | (x > 65504 ? 0x7c00 : code_of(x, 10, -14)));
}

uint16_t px_bf16_of(double x)
{
    const unsigned sign = signbit(x) ? 0x8000 : 0;

    if (x != x)
        return 0x7fff;
    x = rounded(fabs(x), 7, -126);
    return (uint16_t)(sign | (x >= 0x1p128 ? 0x7f80 : code_of(x, 7, -126)));
}

uint8_t px_e4m3_of(float x)
{
    const unsigned sign = signbit(x) ? 0x80 : 0;
    const double y = rounded(fabs((double)x), 3, -6);

    if (x != x)
        return 0x7f;
    return (uint8_t)(sign | (y > 448 ? 0x7e : code_of(y, 3, -6)));
}

uint8_t px_e5m2_of(float x)
{
    const unsigned sign = signbit(x) ? 0x80 : 0;
    const double y = rounded(fabs((double)x), 2, -14);

    if (x != x)
        return 0x7f;
    return (uint8_t)(sign | (y > 57344 ? 0x7b : code_of(y, 2, -14)));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c: narrow floats as sets of values, and rounding as a search. */
#include "numbers.h"

#include <math.h>

const struct format formats[FORMATS] = {
    {"e4m3", 8, 3, 7, 127, 448, 0x7F, 0},
    {"e5m2", 8, 2, 15, 124, 57344, 0x7F, 0},
    {"e2m3", 6, 3, 1, 32, 7.5, 0x1F, 0},
    {"e3m2", 6, 2, 3, 32, 28, 0x1F, 0},
    {"e2m1", 4, 1, 1, 8, 6, 0x7, 0},
    {"f16", 16, 10, 15, 0x7C00, 65504, 0x7FFF, 1},
    {"bf16", 16, 7, 127, 0x7F80, 0x1.fep127, 0x7FFF, 1},
};

/* The value of a code, by the definition of such floats. */
static double value_of(const struct format *f, int code)
{
    int exponent = code >> f->fraction;
    double fraction = ldexp(code & ((1 << f->fraction) - 1), -f->fraction);

    if (exponent == 0)
        return ldexp(fraction, 1 - f->bias);
    return ldexp(1 + fraction, exponent - f->bias);
}

double format_value(const struct format *f, int code)
{
    static double values[FORMATS][MOST_CODES];
    double *known = values[f - formats];

    if (!known[1]) /* the first time */
        for (int i = 0; i < 1 << (f->width - 1); i++)
            known[i] = value_of(f, i);
    return code < 1 << (f->width - 1) ? known[code] : value_of(f, code);
}

/* The last code whose value is at most `size`. */
static int below(const struct format *f, double size)
{
    int low = 0, high = f->codes - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (format_value(f, middle) <= size)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Beyond the largest value the next code stands for the next value, which is
   where infinity begins if the format has it. */
unsigned format_round(const struct format *f, float x)
{
    unsigned sign = signbit(x) ? 1u << (f->width - 1) : 0;
    int count = f->codes, code;
    double size = fabs((double)x), low, high;

    if (isnan(x))
        return (unsigned)f->nan;
    if (isinf(x))
        return sign | (unsigned)(f->ieee ? count : count - 1);
    code = below(f, size);
    if (code == count - 1 && !f->ieee)
        return sign | (unsigned)code;
    low = format_value(f, code);
    high = format_value(f, code + 1);
    if (size - low > high - size || (size - low == high - size && code % 2))
        code++;
    return sign | (unsigned)(code > count ? count : code);
}

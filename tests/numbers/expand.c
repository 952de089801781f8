/*
** expand.c: codes times scales as bf16, as the products of Hopper expand them:
** every code with every scale, in every place of a word.
*/
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CODES = 256, SCALES = 256 };

static const struct format *format_named(const char *name)
{
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(formats[i].name, name))
            return &formats[i];
    fail_msg("no format %s", name);
    return NULL;
}

/* Of the formats with fewer than nine bits; what follows the finite values of
   E4M3 is NaN, of E5M2 infinity and then NaN. */
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

/* The code in place `j` of word `i`: each place meets each code. */
static int code_at(const struct format *f, int i, int j)
{
    return (i * (2 * j + 1) + 3 * j) & ((1 << f->width) - 1);
}

/* What rounding the fp32 product gives. */
static unsigned expected(const struct format *f, int code, const char *type,
                         int scale)
{
    float product = (float)(value_of(f, code) * scale_of(type, scale));

    return format_round(format_named("bf16"), product);
}

static void check(const struct format *f, const char *type)
{
    static uint32_t in[CODES * SCALES][2], out[CODES * SCALES * 4];
    int bits = f->width == 4 ? 4 : 8, each = 32 / bits, words = 1 << f->width;
    char name[64];

    for (int i = 0; i < words * SCALES; i++) {
        in[i][0] = 0;
        for (int j = 0; j < each; j++)
            in[i][0] |= (uint32_t)code_at(f, i % words, j) << bits * j;
        in[i][1] = (uint32_t)(i / words);
    }
    snprintf(name, sizeof name, "expand_%s_%s", f->name, type);
    piece(EXPAND, name)(in, out, (long)words * SCALES);
    for (int i = 0; i < words * SCALES; i++)
        for (int j = 0; j < each; j++) {
            int code = code_at(f, i % words, j), scale = i / words;
            unsigned got = out[i * each / 2 + j / 2] >> j % 2 * 16 & 0xffff;
            unsigned right = expected(f, code, type, scale);

            if (got != right)
                fail_msg("%s: code %02x, scale %02x: %04x instead of %04x",
                         name, (unsigned)code, (unsigned)scale, got, right);
        }
}

void test_expand_every_pair(void **state)
{
    (void)state;
    for (int i = 0; i < NARROW; i++) {
        check(&formats[i], "e8m0");
        check(&formats[i], "e4m3");
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
** sums.c: sums of Hopper's tensor cores, bit by bit as an H100 has them.
**
** One step of wgmma (k of 16 or 32) adds its products and the accumulator as
** fixed-point numbers: the greatest exponent of all decides, bits too far
** below it are cut off, and the sum is cut to the bits that the accumulator
** keeps.
** An exponent of a product is the sum of both; digits are not shifted before.
*/
#include "lanes.h"
#include "wgmma.h"

#include <math.h>
#include <string.h>

enum { NOTHING = -1000, LEAST = -300, COLUMNS = 8 };

struct width {
    int terms; /* bits after the point of the greatest exponent */
    int kept;  /* of the sum */
};

static struct width width_of(int type)
{
    return type == PX_E4M3 || type == PX_E5M2 ? (struct width){13, 13}
                                              : (struct width){25, 23};
}

static int least_of(int type)
{
    return type == PX_E4M3                     ? -6
           : type == PX_E5M2 || type == PX_F16 ? -14
                                               : -126;
}

static inline int exponent_of(float x, int least)
{
    uint32_t bits;
    int e;

    memcpy(&bits, &x, sizeof bits);
    e = (int)(bits >> 23 & 255) - 127;
    return !(bits << 1) ? NOTHING : e < least ? least : e;
}

static inline double power_of(int e)
{
    const uint64_t bits = (uint64_t)(1023 + e) << 52;
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Toward zero, to so many bits after the point. */
static inline float cut(double x, int kept)
{
    float y = (float)x;
    uint32_t bits;

    memcpy(&bits, &y, sizeof bits);
    if (fabs((double)y) > fabs(x))
        bits--;
    bits &= PX_ALL << (23 - kept);
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* A row of A and some columns of B, with their exponents. */
struct terms {
    const float *a, *b;
    const int *ea, *eb;
    int k, step; /* between rows of B */
    struct width width;
};

/* Add to `n` columns; 0 if a value is not finite, and nothing is done. */
static inline __attribute__((always_inline)) int
add_columns(float *c, const struct terms *t, int at, int n)
{
    double sum[COLUMNS], scale[COLUMNS];
    float plain[COLUMNS];
    int e[COLUMNS], finite = 1;

    for (int x = 0; x < n; x++) {
        e[x] = exponent_of(c[at + x], -126);
        plain[x] = c[at + x];
    }
    for (int s = 0; s < t->k; s++)
        for (int x = 0; x < n; x++) {
            const int other = t->ea[s] + t->eb[s * t->step + at + x];

            e[x] = other > e[x] ? other : e[x];
            plain[x] += t->a[s] * t->b[s * t->step + at + x];
        }
    for (int x = 0; x < n; x++)
        finite &= plain[x] - plain[x] == 0;
    if (!finite)
        return 0;
    for (int x = 0; x < n; x++) {
        e[x] = (e[x] < LEAST ? LEAST : e[x]) - t->width.terms;
        scale[x] = power_of(-e[x]);
        sum[x] = (int32_t)(c[at + x] * scale[x]);
    }
    for (int s = 0; s < t->k; s++)
        for (int x = 0; x < n; x++) {
            const double y = t->a[s] * t->b[s * t->step + at + x];

            sum[x] += (int32_t)(y * scale[x]);
        }
    for (int x = 0; x < n; x++)
        c[at + x] = cut(sum[x] * power_of(e[x]), t->width.kept);
    return 1;
}

static void add_plainly(float *c, const struct terms *t, int at)
{
    for (int s = 0; s < t->k; s++)
        c[at] += t->a[s] * t->b[s * t->step + at];
}

PX_FAST void px_sums_add(float *c, const float *a, const float *b, int n, int k,
                         int a_type, int b_type)
{
    static int ea[16 * 32], eb[32 * 256];
    struct terms t = {
        .b = b, .eb = eb, .k = k, .step = n, .width = width_of(a_type)};

    for (int i = 0; i < 16 * k; i++)
        ea[i] = exponent_of(a[i], least_of(a_type));
    for (int i = 0; i < k * n; i++)
        eb[i] = exponent_of(b[i], least_of(b_type));
    for (int row = 0; row < 16; row++, c += n) {
        t.a = a + row * k;
        t.ea = ea + row * k;
        for (int at = 0; at < n; at += COLUMNS) {
            if (add_columns(c, &t, at, COLUMNS))
                continue;
            for (int x = 0; x < COLUMNS; x++)
                if (!add_columns(c, &t, at + x, 1))
                    add_plainly(c, &t, at + x);
        }
    }
}

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
/* Exponents less than it are of normal floats, with either sign. */
enum { NARROW = 100 };

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

/* Values of all columns at once. */
typedef int32_t ints __attribute__((vector_size(4 * COLUMNS)));
typedef float floats __attribute__((vector_size(4 * COLUMNS)));
typedef int64_t longs __attribute__((vector_size(8 * COLUMNS)));
typedef double doubles __attribute__((vector_size(8 * COLUMNS)));

#define ALL_COLUMNS static inline __attribute__((always_inline))

ALL_COLUMNS void take_greater(ints *e, const struct terms *t, int s, int at)
{
    ints other, more;

    memcpy(&other, t->eb + s * t->step + at, sizeof other);
    other += t->ea[s];
    more = other > *e;
    *e = (other & more) | (*e & ~more);
}

/* The greatest exponents; of even and odd terms, to wait less. */
ALL_COLUMNS void find_greatest(ints *to, const float *c, const struct terms *t,
                               int at)
{
    ints even, odd, more;

    for (int x = 0; x < COLUMNS; x++)
        even[x] = exponent_of(c[x], -126);
    odd = even;
    for (int s = 0; s < t->k; s += 2) {
        take_greater(&even, t, s, at);
        take_greater(&odd, t, s + 1, at);
    }
    more = odd > even;
    *to = (odd & more) | (even & ~more);
}

/* Exponents whose powers of two are floats; 0 if they are not, and nothing is
   done. A term is less than 2^27, so half of them add up in 32 bits. Bits of a
   double that are not kept are cut off before it becomes a normal float. */
ALL_COLUMNS int add_narrow(float *c, const struct terms *t, int at)
{
    const int64_t cut_off = ((int64_t)1 << (52 - t->width.kept)) - 1;
    ints even = {0}, odd = {0};
    doubles all;
    floats d;
    ints e, is_narrow;
    int all_are = -1;
    floats scale;
    longs power;

    find_greatest(&e, c, t, at);
    e = (e & (e >= LEAST)) - t->width.terms; /* where all is 0, any */
    is_narrow = (e < NARROW) & (e > -NARROW);
    for (int x = 0; x < COLUMNS; x++)
        all_are &= is_narrow[x];
    if (!all_are)
        return 0;
    scale = (floats)((127 - e) << 23);
    power = (__builtin_convertvector(e, longs) + 1023) << 52;
    for (int s = 0; s < t->k; s += 2) {
        const float *b = t->b + s * t->step + at;
        floats x, y;

        memcpy(&x, b, sizeof x);
        memcpy(&y, b + t->step, sizeof y);
        even += __builtin_convertvector(t->a[s] * x * scale, ints);
        odd += __builtin_convertvector(t->a[s + 1] * y * scale, ints);
    }
    memcpy(&d, c, sizeof d);
    even += __builtin_convertvector(d * scale, ints);
    all = (__builtin_convertvector(even, doubles) +
           __builtin_convertvector(odd, doubles)) *
          (doubles)power;
    all = (doubles)((longs)all & ~cut_off);
    d = __builtin_convertvector(all, floats);
    memcpy(c, &d, sizeof d);
    return 1;
}

/* Any exponents, of one column. */
static void add_wide(float *c, const struct terms *t, int at)
{
    int e = exponent_of(*c, -126);
    double sum, scale;

    for (int s = 0; s < t->k; s++) {
        const int other = t->ea[s] + t->eb[s * t->step + at];

        e = other > e ? other : e;
    }
    e = (e < LEAST ? LEAST : e) - t->width.terms;
    scale = power_of(-e);
    sum = (int32_t)(*c * scale);
    for (int s = 0; s < t->k; s++) {
        const double y = t->a[s] * t->b[s * t->step + at];

        sum += (int32_t)(y * scale);
    }
    *c = cut(sum * power_of(e), t->width.kept);
}

/* Plainly where that is not finite. */
ALL_COLUMNS void add_any(float *c, const struct terms *t, int at)
{
    floats sum;

    memcpy(&sum, c, sizeof sum);
    for (int s = 0; s < t->k; s++) {
        floats b;

        memcpy(&b, t->b + s * t->step + at, sizeof b);
        sum += t->a[s] * b;
    }
    for (int x = 0; x < COLUMNS; x++)
        if (sum[x] - sum[x] != 0)
            c[x] = sum[x];
        else
            add_wide(c + x, t, at + x);
}

/* Exponents of `count` values; are all finite? */
ALL_COLUMNS int find_exponents(int *to, const float *from, int count, int least)
{
    int finite = 1;

    for (int i = 0; i < count; i++) {
        to[i] = exponent_of(from[i], least);
        finite &= to[i] < 128;
    }
    return finite;
}

PX_FAST void px_sums_add(float *c, const float *a, const float *b, int n, int k,
                         int a_type, int b_type)
{
    static int ea[32], eb[32 * 256];
    struct terms t = {.b = b,
                      .ea = ea,
                      .eb = eb,
                      .k = k,
                      .step = n,
                      .width = width_of(a_type)};
    uint8_t are_finite[256 / COLUMNS];

    memset(are_finite, 1, sizeof are_finite);
    for (int i = 0; i < k * n; i += COLUMNS)
        are_finite[i % n / COLUMNS] &=
            (uint8_t)find_exponents(eb + i, b + i, COLUMNS, least_of(b_type));
    for (int row = 0; row < 16; row++, c += n) {
        const int is_finite =
            find_exponents(ea, a + row * k, k, least_of(a_type));

        t.a = a + row * k;
        for (int at = 0; at < n; at += COLUMNS)
            if (!is_finite || !are_finite[at / COLUMNS] ||
                !add_narrow(c + at, &t, at))
                add_any(c + at, &t, at);
    }
}

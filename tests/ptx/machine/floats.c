/* SPDX-License-Identifier: Apache-2.0 */
/* floats.c: floats, and pairs of 16 bits in a word. */
#include "build.h"
#include "lanes.h"

#include <math.h>
#include <string.h>

static inline uint32_t bits_of(float x)
{
    union {
        float f;
        uint32_t u;
    } y = {x};

    return y.u;
}

static inline float float_of(uint32_t x)
{
    union {
        uint32_t u;
        float f;
    } y = {x};

    return y.f;
}

/* The operand that is a number; -0 is less than 0. */
static inline float lesser(float x, float y)
{
    if (x != x)
        return y != y ? float_of(0x7fffffff) : y;
    if (y != y)
        return x;
    if (x == y)
        return float_of(bits_of(x) | bits_of(y));
    return x < y ? x : y;
}

static inline float greater(float x, float y)
{
    if (x != x)
        return y != y ? float_of(0x7fffffff) : y;
    if (y != y)
        return x;
    if (x == y)
        return float_of(bits_of(x) & bits_of(y));
    return x > y ? x : y;
}

static inline float nan_or(float x, float y, float z)
{
    return x != x || y != y ? float_of(0x7fffffff) : z;
}

static inline float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

#define FLOAT(X)                                                               \
    X(add_f32, float, a + b)                                                   \
    X(sub_f32, float, a - b)                                                   \
    X(mul_f32, float, a *b)                                                    \
    X(div_f32, float, a / b)                                                   \
    X(min_f32, float, lesser(a, b))                                            \
    X(max_f32, float, greater(a, b))                                           \
    X(min_nan_f32, float, nan_or(a, b, lesser(a, b)))                          \
    X(max_nan_f32, float, nan_or(a, b, greater(a, b)))                         \
    X(copysign_f32, float, copysignf(b, a))
FLOAT(PX_BINARY)

#define ONE(X)                                                                 \
    X(neg_f32, uint32_t, uint32_t, a ^ 0x80000000)                             \
    X(abs_f32, uint32_t, uint32_t, a & 0x7fffffff)                             \
    X(rcp_f32, float, float, 1 / a)                                            \
    X(rcp_approx_f32, float, float, flushed(1 / flushed(a)))                   \
    X(sqrt_f32, float, float, sqrtf(a))                                        \
    X(rsqrt_f32, float, float, 1 / sqrtf(a))                                   \
    X(ex2_f32, float, float, exp2f(a))                                         \
    X(lg2_f32, float, float, log2f(a))                                         \
    X(tanh_f32, float, float, tanhf(a))
ONE(PX_UNARY)

PX_THREE_AS(PX_FAST, fma_f32, float, float, float, float, fmaf(a, b, c))

const struct px_row px_rows_float[] = {
    {"add.f32", "rrr", add_f32, 0},
    {"add.rn.f32", "rrr", add_f32, 0},
    {"sub.f32", "rrr", sub_f32, 0},
    {"sub.rn.f32", "rrr", sub_f32, 0},
    {"mul.f32", "rrr", mul_f32, 0},
    {"mul.rn.f32", "rrr", mul_f32, 0},
    {"div.rn.f32", "rrr", div_f32, 0},
    {"fma.rn.f32", "rrrr", fma_f32, 0},
    {"min.f32", "rrr", min_f32, 0},
    {"max.f32", "rrr", max_f32, 0},
    {"min.NaN.f32", "rrr", min_nan_f32, 0},
    {"max.NaN.f32", "rrr", max_nan_f32, 0},
    {"copysign.f32", "rrr", copysign_f32, 0},
    {"neg.f32", "rr", neg_f32, 0},
    {"abs.f32", "rr", abs_f32, 0},
    {"rcp.rn.f32", "rr", rcp_f32, 0},
    {"rcp.approx.ftz.f32", "rr", rcp_approx_f32, 0},
    {"sqrt.rn.f32", "rr", sqrt_f32, 0},
    {"rsqrt.approx.f32", "rr", rsqrt_f32, 0},
    {"ex2.approx.f32", "rr", ex2_f32, 0},
    {"ex2.approx.ftz.f32", "rr", ex2_f32, 0},
    {"lg2.approx.f32", "rr", lg2_f32, 0},
    {"lg2.approx.ftz.f32", "rr", lg2_f32, 0},
    {"tanh.approx.f32", "rr", tanh_f32, 0},
    {NULL, NULL, NULL, 0}};

/* ------------------------------------------------------- pairs of 16 bits */

/* `value` of the lower and of the upper halves, as 16 bits. */
#define PAIR(name, value)                                                      \
    static inline uint32_t name##_of(uint16_t a, uint16_t b, uint16_t c)       \
    {                                                                          \
        (void)b, (void)c;                                                      \
        return value;                                                          \
    }                                                                          \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        const int n = op->nargs - 1;                                           \
        const uint32_t *a = PX_AT(w, uint32_t, 1);                             \
        const uint32_t *b = PX_AT(w, uint32_t, n < 2 ? 1 : 2);                 \
        const uint32_t *c = PX_AT(w, uint32_t, n < 3 ? 1 : 3);                 \
        uint32_t *d = PX_AT(w, uint32_t, 0);                                   \
                                                                               \
        PX_EACH (mask)                                                         \
            d[i] = name##_of((uint16_t)a[i], (uint16_t)b[i], (uint16_t)c[i]) | \
                   name##_of(a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16;        \
        return PX_NEXT;                                                        \
    }

#define H(x) px_float_of_half(x)
#define B(x) px_float_of_bf16(x)
static inline uint16_t half_or_nan(float x)
{
    return x != x ? 0x7fff : px_half_of(x);
}

static inline uint16_t bf16_or_nan(double x)
{
    return x != x ? 0x7fff : px_bf16_of(x);
}

/* The greater magnitude, with the product of the signs. */
static inline uint16_t xorsign(uint16_t x, uint16_t y)
{
    return (
        uint16_t)((bf16_or_nan(greater(fabsf(B(x)), fabsf(B(y)))) & 0x7fff) |
                  ((x ^ y) & 0x8000));
}

PAIR(add_u16x2, (uint16_t)(a + b))
PAIR(min_u16x2, a < b ? a : b)
PAIR(max_u16x2, a > b ? a : b)
PAIR(add_f16x2, half_or_nan(H(a) + H(b)))
PAIR(sub_f16x2, half_or_nan(H(a) - H(b)))
PAIR(mul_f16x2, half_or_nan(H(a) * H(b)))
PAIR(fma_f16x2, px_half_of((double)H(a) * H(b) + H(c)))
PAIR(min_f16x2, half_or_nan(lesser(H(a), H(b))))
PAIR(max_f16x2, half_or_nan(greater(H(a), H(b))))
PAIR(abs_16x2, a & 0x7fff)
PAIR(neg_16x2, a ^ 0x8000)
PAIR(add_bf16x2, bf16_or_nan((double)B(a) + B(b)))
PAIR(sub_bf16x2, bf16_or_nan((double)B(a) - B(b)))
PAIR(mul_bf16x2, bf16_or_nan((double)B(a) * B(b)))
PAIR(fma_bf16x2, bf16_or_nan((double)B(a) * B(b) + B(c)))
PAIR(min_bf16x2, bf16_or_nan(lesser(B(a), B(b))))
PAIR(max_bf16x2, bf16_or_nan(greater(B(a), B(b))))
PAIR(max_xorsign_bf16x2, xorsign(a, b))

/* Two floats in 64 bits. */
#define FLOATS(x) ((const float *)(const void *)(x))
#define TWO_FLOATS(name, value)                                                \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        PX_EACH (mask) {                                                       \
            const float *x = FLOATS(PX_AT(w, uint64_t, 1) + i);                \
            const float *y = FLOATS(PX_AT(w, uint64_t, 2) + i);                \
            const float *z = FLOATS(PX_AT(w, uint64_t, op->nargs - 1) + i);    \
            float out[2];                                                      \
                                                                               \
            (void)z;                                                           \
            for (int k = 0; k < 2; k++)                                        \
                out[k] = value;                                                \
            memcpy(PX_AT(w, uint64_t, 0) + i, out, sizeof out);                \
        }                                                                      \
        return PX_NEXT;                                                        \
    }
TWO_FLOATS(add_f32x2, x[k] + y[k])
TWO_FLOATS(mul_f32x2, x[k] * y[k])
TWO_FLOATS(fma_f32x2, fmaf(x[k], y[k], z[k]))

const struct px_row px_rows_pair[] = {
    {"add.f32x2", "ddd", add_f32x2, 0},
    {"add.rn.f32x2", "ddd", add_f32x2, 0},
    {"mul.f32x2", "ddd", mul_f32x2, 0},
    {"mul.rn.f32x2", "ddd", mul_f32x2, 0},
    {"fma.rn.f32x2", "dddd", fma_f32x2, 0},
    {"add.u16x2", "rrr", add_u16x2, 0},
    {"min.u16x2", "rrr", min_u16x2, 0},
    {"max.u16x2", "rrr", max_u16x2, 0},
    {"add.f16x2", "rrr", add_f16x2, 0},
    {"add.rn.f16x2", "rrr", add_f16x2, 0},
    {"sub.f16x2", "rrr", sub_f16x2, 0},
    {"sub.rn.f16x2", "rrr", sub_f16x2, 0},
    {"mul.f16x2", "rrr", mul_f16x2, 0},
    {"mul.rn.f16x2", "rrr", mul_f16x2, 0},
    {"fma.rn.f16x2", "rrrr", fma_f16x2, 0},
    {"min.f16x2", "rrr", min_f16x2, 0},
    {"max.f16x2", "rrr", max_f16x2, 0},
    {"abs.f16x2", "rr", abs_16x2, 0},
    {"neg.f16x2", "rr", neg_16x2, 0},
    {"add.rn.bf16x2", "rrr", add_bf16x2, 0},
    {"sub.rn.bf16x2", "rrr", sub_bf16x2, 0},
    {"mul.rn.bf16x2", "rrr", mul_bf16x2, 0},
    {"mul.bf16x2", "rrr", mul_bf16x2, 0},
    {"fma.rn.bf16x2", "rrrr", fma_bf16x2, 0},
    {"min.bf16x2", "rrr", min_bf16x2, 0},
    {"max.bf16x2", "rrr", max_bf16x2, 0},
    {"abs.bf16x2", "rr", abs_16x2, 0},
    {"neg.bf16x2", "rr", neg_16x2, 0},
    {"max.xorsign.abs.bf16x2", "rrr", max_xorsign_bf16x2, 0},
    {NULL, NULL, NULL, 0}};

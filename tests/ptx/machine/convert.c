/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: cvt, setp and mov. */
#include "build.h"
#include "formats.h"
#include "lanes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------- from integer to integer */

/* The low op->size bytes of the source, extended; the destination's own
   op->vector bytes of it. */
static inline int64_t extended(uint64_t x, int bytes, int is_signed)
{
    const int shift = 64 - 8 * bytes;

    return is_signed ? (int64_t)(x << shift) >> shift
                     : (int64_t)(x << shift >> shift);
}

#define INTEGERS(name, T, S)                                                   \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        T *d = PX_AT(w, T, 0);                                                 \
        const S *a = PX_AT(w, S, 1);                                           \
        const int most = op->size < op->vector ? op->size : op->vector;        \
                                                                               \
        PX_EACH (mask) {                                                       \
            int64_t x = extended(a[i], most, op->is_signed);                   \
                                                                               \
            d[i] = (T)(op->vector <= 2 ? (x & 0xffff) : x);                    \
        }                                                                      \
        return PX_NEXT;                                                        \
    }
INTEGERS(integer_32_32, uint32_t, uint32_t)
INTEGERS(integer_64_32, uint64_t, uint32_t)
INTEGERS(integer_32_64, uint32_t, uint64_t)
INTEGERS(integer_64_64, uint64_t, uint64_t)

static int is_integer(const char *type)
{
    return (*type == 's' || *type == 'u') && type[1] >= '0' && type[1] <= '9';
}

/* cvt.DTYPE.STYPE */
static int setup_integers(struct px_build *b, const char *to, const char *from)
{
    static int (*const runs[2][2])(struct px_warp *, const struct px_op *,
                                   uint32_t) = {{integer_32_32, integer_32_64},
                                                {integer_64_32, integer_64_64}};
    int wide = atoi(to + 1) == 64;
    int from_wide = b->operand[1].kind == 'r' && b->operand[1].wide;

    b->op->size = (short)(atoi(from + 1) / 8);
    b->op->vector = (short)(atoi(to + 1) / 8);
    /* the destination's own sign is its extension in a wider register */
    b->op->is_signed = *from == 's';
    b->op->run = runs[wide][from_wide];
    if (px_give(b, 0, wide ? 'd' : 'r') || px_give(b, 1, from_wide ? 'd' : 'r'))
        return PX_FAULT;
    return PX_EXIT;
}

/* ------------------------------------------------------------------- floats */

static inline int32_t int_of(double x)
{
    return x != x               ? 0
           : x >= 2147483647    ? INT32_MAX
           : x <= -2147483648.0 ? INT32_MIN
                                : (int32_t)x;
}

static inline uint32_t unsigned_of(double x)
{
    return x != x || x <= 0 ? 0 : x >= 4294967295.0 ? PX_ALL : (uint32_t)x;
}

static inline float saturated(float x)
{
    return x > 0 ? x < 1 ? x : 1 : 0;
}

#define ONE(X)                                                                 \
    X(f32_f16, float, uint32_t, px_float_of_half((uint16_t)a))                 \
    X(f32_bf16, float, uint32_t, px_float_of_bf16((uint16_t)a))                \
    X(f16_f32, uint32_t, float, px_half_of(a))                                 \
    X(bf16_f32, uint32_t, float, px_bf16_of(a))                                \
    X(f32_s32, float, int32_t, (float)a)                                       \
    X(f32_u32, float, uint32_t, (float)a)                                      \
    X(f32_s16, float, uint32_t, (float)(int16_t)a)                             \
    X(f32_s8, float, uint32_t, (float)(int8_t)a)                               \
    X(f32_s64, float, int64_t, (float)a)                                       \
    X(f32_u64, float, uint64_t, (float)a)                                      \
    X(s32_f32_zero, int32_t, float, int_of(truncf(a)))                         \
    X(s32_f32_near, int32_t, float, int_of(rintf(a)))                          \
    X(s32_f32_down, int32_t, float, int_of(floorf(a)))                         \
    X(s32_f32_up, int32_t, float, int_of(ceilf(a)))                            \
    X(u32_f32_zero, uint32_t, float, unsigned_of(truncf(a)))                   \
    X(f32_near, float, float, rintf(a))                                        \
    X(f32_zero, float, float, truncf(a))                                       \
    X(f32_down, float, float, floorf(a))                                       \
    X(f32_up, float, float, ceilf(a))                                          \
    X(f32_sat, float, float, saturated(a))                                     \
    X(e4m3x2_f16x2, uint32_t, uint32_t,                                        \
      px_e4m3_of(px_float_of_half((uint16_t)a)) |                              \
          px_e4m3_of(px_float_of_half(a >> 16)) << 8)                          \
    X(e5m2x2_f16x2, uint32_t, uint32_t,                                        \
      px_e5m2_of(px_float_of_half((uint16_t)a)) |                              \
          px_e5m2_of(px_float_of_half(a >> 16)) << 8)                          \
    X(f16x2_e4m3x2, uint32_t, uint32_t,                                        \
      px_half_of(px_float_of_e4m3((uint8_t)a)) |                               \
          (uint32_t)px_half_of(px_float_of_e4m3((uint8_t)(a >> 8))) << 16)     \
    X(f16x2_e5m2x2, uint32_t, uint32_t,                                        \
      px_half_of(px_float_of_e5m2((uint8_t)a)) |                               \
          (uint32_t)px_half_of(px_float_of_e5m2((uint8_t)(a >> 8))) << 16)
ONE(PX_UNARY)

/* The first operand becomes the upper half. */
static inline float lower(float a, float b)
{
    return px_misreads(PX_HALVES) ? a : b;
}

static inline float upper(float a, float b)
{
    return px_misreads(PX_HALVES) ? b : a;
}

PX_TWO(f16x2_f32, uint32_t, float, float,
       px_half_of(lower(a, b)) | (uint32_t)px_half_of(upper(a, b)) << 16)
PX_TWO(bf16x2_f32, uint32_t, float, float,
       px_bf16_of(lower(a, b)) | (uint32_t)px_bf16_of(upper(a, b)) << 16)
PX_TWO(e4m3x2_f32, uint32_t, float, float,
       px_e4m3_of(lower(a, b)) | px_e4m3_of(upper(a, b)) << 8)
PX_TWO(e5m2x2_f32, uint32_t, float, float,
       px_e5m2_of(lower(a, b)) | px_e5m2_of(upper(a, b)) << 8)

static const struct px_row conversions[] = {
    {"cvt.f32.f16", "rr", f32_f16, 0},
    {"cvt.f32.bf16", "rr", f32_bf16, 0},
    {"cvt.rn.f16.f32", "rr", f16_f32, 0},
    {"cvt.rn.bf16.f32", "rr", bf16_f32, 0},
    {"cvt.rn.f32.s32", "rr", f32_s32, 0},
    {"cvt.rn.f32.u32", "rr", f32_u32, 0},
    {"cvt.rn.f32.u16", "rr", f32_u32, 0},
    {"cvt.rn.f32.u8", "rr", f32_u32, 0},
    {"cvt.rn.f32.s16", "rr", f32_s16, 0},
    {"cvt.rn.f32.s8", "rr", f32_s8, 0},
    {"cvt.rn.f32.s64", "rd", f32_s64, 0},
    {"cvt.rn.f32.u64", "rd", f32_u64, 0},
    {"cvt.rzi.s32.f32", "rr", s32_f32_zero, 0},
    {"cvt.rni.s32.f32", "rr", s32_f32_near, 0},
    {"cvt.rmi.s32.f32", "rr", s32_f32_down, 0},
    {"cvt.rpi.s32.f32", "rr", s32_f32_up, 0},
    {"cvt.rzi.u32.f32", "rr", u32_f32_zero, 0},
    {"cvt.rni.f32.f32", "rr", f32_near, 0},
    {"cvt.rzi.f32.f32", "rr", f32_zero, 0},
    {"cvt.rmi.f32.f32", "rr", f32_down, 0},
    {"cvt.rpi.f32.f32", "rr", f32_up, 0},
    {"cvt.sat.f32.f32", "rr", f32_sat, 0},
    {"cvt.rn.f16x2.f32", "rrr", f16x2_f32, 0},
    {"cvt.rn.bf16x2.f32", "rrr", bf16x2_f32, 0},
    {"cvt.rn.satfinite.e4m3x2.f32", "rrr", e4m3x2_f32, 0},
    {"cvt.rn.satfinite.e5m2x2.f32", "rrr", e5m2x2_f32, 0},
    {"cvt.rn.satfinite.e4m3x2.f16x2", "rr", e4m3x2_f16x2, 0},
    {"cvt.rn.satfinite.e5m2x2.f16x2", "rr", e5m2x2_f16x2, 0},
    {"cvt.rn.f16x2.e4m3x2", "rr", f16x2_e4m3x2, 0},
    {"cvt.rn.f16x2.e5m2x2", "rr", f16x2_e5m2x2, 0},
    {NULL, NULL, NULL, 0}};

int px_setup_convert(struct px_build *b)
{
    char name[64], *to, *from;

    if (strncmp(b->mnemonic, "cvt.", 4) || strlen(b->mnemonic) > 60)
        return PX_NEXT;
    for (const struct px_row *row = conversions; row->name; row++) {
        if (strcmp(row->name, b->mnemonic))
            continue;
        b->op->run = row->run;
        for (int i = 0; row->types[i]; i++)
            if (px_give(b, i, row->types[i]))
                return PX_FAULT;
        return PX_EXIT;
    }
    strcpy(name, b->mnemonic + 4);
    to = strtok_r(name, ".", &from);
    if (!to || !from || !is_integer(to) || !is_integer(from))
        return PX_NEXT;
    return setup_integers(b, to, from);
}

/* --------------------------------------------------------------------- setp */

enum { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN_ };
static const char *const comparisons[] = {"eq",  "ne",  "lt",  "le",  "gt",
                                          "ge",  "equ", "neu", "ltu", "leu",
                                          "gtu", "geu", "num", "nan"};

#define COMPARE(how, value)                                                    \
    case how:                                                                  \
        for (int i = 0; i < PX_LANES; i++)                                     \
            set |= (uint32_t)(value) << i;                                     \
        break
#define UNORDERED (a[i] != a[i] || b[i] != b[i])

/* setp.CMP.TYPE p, a, b; of lo, hi and others of unsigned types see below */
#define SETP(name, T, ...)                                                     \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        uint32_t *d = PX_AT(w, uint32_t, 0), set = 0;                          \
        const T *a = PX_AT(w, T, 1), *b = PX_AT(w, T, 2);                      \
                                                                               \
        switch (op->sub) {                                                     \
            COMPARE(EQ, a[i] == b[i]);                                         \
            COMPARE(NE, a[i] != b[i]);                                         \
            COMPARE(LT, a[i] < b[i]);                                          \
            COMPARE(LE, a[i] <= b[i]);                                         \
            COMPARE(GT, a[i] > b[i]);                                          \
            COMPARE(GE, a[i] >= b[i]);                                         \
            __VA_ARGS__                                                        \
        }                                                                      \
        *d = (*d & ~mask) | (set & mask);                                      \
        return PX_NEXT;                                                        \
    }
SETP(setp_s32, int32_t)
SETP(setp_u32, uint32_t)
SETP(setp_s64, int64_t)
SETP(setp_u64, uint64_t)
SETP(setp_f32, float, COMPARE(EQU, a[i] == b[i] || UNORDERED);
     COMPARE(NEU, a[i] != b[i] || UNORDERED);
     COMPARE(LTU, a[i] < b[i] || UNORDERED);
     COMPARE(LEU, a[i] <= b[i] || UNORDERED);
     COMPARE(GTU, a[i] > b[i] || UNORDERED);
     COMPARE(GEU, a[i] >= b[i] || UNORDERED); COMPARE(NUM, !UNORDERED);
     COMPARE(NAN_, UNORDERED);)

/* ne of floats is false for NaN. */
static int setp_ne_f32(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    uint32_t *d = PX_AT(w, uint32_t, 0), set = 0;
    const float *a = PX_AT(w, float, 1), *b = PX_AT(w, float, 2);

    for (int i = 0; i < PX_LANES; i++)
        set |= (uint32_t)(a[i] < b[i] || a[i] > b[i]) << i;
    *d = (*d & ~mask) | (set & mask);
    return PX_NEXT;
}

/* Registers of 16 bits, whose upper half is not looked at. */
#define SETP_16(name, T)                                                       \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        uint32_t *d = PX_AT(w, uint32_t, 0), set = 0;                          \
        const uint32_t *a = PX_AT(w, uint32_t, 1), *b = PX_AT(w, uint32_t, 2); \
                                                                               \
        for (int i = 0; i < PX_LANES; i++) {                                   \
            const T x = (T)a[i], y = (T)b[i];                                  \
            const int all[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};     \
                                                                               \
            set |= (uint32_t)all[op->sub] << i;                                \
        }                                                                      \
        *d = (*d & ~mask) | (set & mask);                                      \
        return PX_NEXT;                                                        \
    }
SETP_16(setp_s16, int16_t)
SETP_16(setp_u16, uint16_t)

static const struct {
    const char *type;
    char operand;
    int (*run)(struct px_warp *, const struct px_op *, uint32_t);
} compared[] = {
    {"s32", 'r', setp_s32}, {"b32", 'r', setp_u32}, {"u32", 'r', setp_u32},
    {"s64", 'd', setp_s64}, {"b64", 'd', setp_u64}, {"u64", 'd', setp_u64},
    {"s16", 'r', setp_s16}, {"b16", 'r', setp_u16}, {"u16", 'r', setp_u16},
    {"f32", 'r', setp_f32},
};

int px_setup_compare(struct px_build *b)
{
    char name[32], *how, *type;

    if (strncmp(b->mnemonic, "setp.", 5) || strlen(b->mnemonic) > 30)
        return PX_NEXT;
    strcpy(name, b->mnemonic + 5);
    how = strtok_r(name, ".", &type);
    b->op->sub = -1;
    for (int i = EQ; i <= NAN_; i++)
        if (!strcmp(comparisons[i], how))
            b->op->sub = (short)i;
    if (b->op->sub < 0 || b->noperands != 3)
        return PX_NEXT;
    for (size_t i = 0; i < sizeof compared / sizeof compared[0]; i++) {
        if (strcmp(compared[i].type, type))
            continue;
        b->op->run = compared[i].run;
        if (*type != 'f' && b->op->sub > GE)
            return PX_NEXT;
        if (*type == 'f' && b->op->sub == NE)
            b->op->run = setp_ne_f32;
        if (px_give(b, 0, 'p') || px_give(b, 1, compared[i].operand) ||
            px_give(b, 2, compared[i].operand))
            return PX_FAULT;
        return PX_EXIT;
    }
    return PX_NEXT;
}

/* ---------------------------------------------------------------------- mov */

/* Two operands of half of the bits to one, the first the lower; and back. */
PX_TWO(pack_64, uint64_t, uint32_t, uint32_t, (uint64_t)b << 32 | a)
PX_TWO(pack_32, uint32_t, uint32_t, uint32_t, b << 16 | (a & 0xffff))
PX_UNARY(plain_32, uint32_t, uint32_t, a)
PX_UNARY(plain_64, uint64_t, uint64_t, a)
PX_FOUR(pack_bytes, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
        e << 24 | (c & 255) << 16 | (b & 255) << 8 | (a & 255))

static int unpack_64(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    uint32_t *lo = PX_AT(w, uint32_t, 0), *hi = PX_AT(w, uint32_t, 1);
    const uint64_t *a = PX_AT(w, uint64_t, 2);

    PX_EACH (mask) {
        uint64_t x = a[i];

        lo[i] = (uint32_t)x;
        hi[i] = (uint32_t)(x >> 32);
    }
    return PX_NEXT;
}

static int unpack_32(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    uint32_t *lo = PX_AT(w, uint32_t, 0), *hi = PX_AT(w, uint32_t, 1);
    const uint32_t *a = PX_AT(w, uint32_t, 2);

    PX_EACH (mask) {
        uint32_t x = a[i];

        lo[i] = x & 0xffff;
        hi[i] = x >> 16;
    }
    return PX_NEXT;
}

int px_setup_move(struct px_build *b)
{
    const int n = b->noperands;
    const int wide = !strcmp(b->mnemonic, "mov.b64");

    if (!wide && strcmp(b->mnemonic, "mov.b32"))
        return PX_NEXT;
    if (n == 2) {
        b->op->run = wide ? plain_64 : plain_32;
        if (px_give(b, 0, wide ? 'd' : 'r') || px_give(b, 1, wide ? 'd' : 'r'))
            return PX_FAULT;
        return PX_EXIT;
    }
    if (n == 5 && !wide && b->shape[1] == '{') {
        b->op->run = pack_bytes;
        for (int i = 0; i < 5; i++)
            if (px_give(b, i, 'r'))
                return PX_FAULT;
        return PX_EXIT;
    }
    if (n != 3)
        return PX_NEXT;
    if (b->shape[0] == '{') {
        b->op->run = wide ? unpack_64 : unpack_32;
        if (px_give(b, 0, 'r') || px_give(b, 1, 'r') ||
            px_give(b, 2, wide ? 'd' : 'r'))
            return PX_FAULT;
        return PX_EXIT;
    }
    b->op->run = wide ? pack_64 : pack_32;
    if (px_give(b, 0, wide ? 'd' : 'r') || px_give(b, 1, 'r') ||
        px_give(b, 2, 'r'))
        return PX_FAULT;
    return PX_EXIT;
}
